// Holds the data of the heartbeats that this rank sends: the progress of the thread that computes
// (a few relaxed stores), the terms on which it would join an epoch, whether it leaves, and the
// ranks whose datagrams have stopped. membership.h judges those that arrive from others.
//
//   begin(step, expected)   a step is open: from here on, a lack of progress is suspicious
//   reached(stage)          the step moves
//   waiting(), computing()  before and after waits for other ranks' messages
//   end()                   the step is closed
//
// A rank is lost if its open step has exceeded the expected time and then makes no progress for as
// long as a silent rank would be given. So a hung compute thread is noticed although its process is
// alive. membership.h judges this, and the silence of a rank whose heartbeats stop. Waits do not
// count, because every rank that waits for a hung one makes no progress either.
// Threads: the engine's writes, or where steps overlap the forward thread in a pass; any reads.
#pragma once

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "cluster/member.h"

namespace hocket {

class OwnHeartbeat {
 public:
  void begin(uint64_t step, Duration expected) {
    step_.store(step, std::memory_order_relaxed);
    stage_.store(0, std::memory_order_relaxed);
    const int64_t ms = std::chrono::ceil<std::chrono::milliseconds>(expected).count();
    expected_ms_.store(
        static_cast<uint32_t>(std::clamp<int64_t>(ms, 0, std::numeric_limits<uint32_t>::max())),
        std::memory_order_relaxed);
    computing();
  }
  void reached(uint32_t stage) { stage_.store(stage, std::memory_order_relaxed); }
  void waiting() { state_.store(EngineState::waiting, std::memory_order_relaxed); }
  void computing() { state_.store(EngineState::computing, std::memory_order_relaxed); }
  void end() { state_.store(EngineState::closed, std::memory_order_relaxed); }
  // Sets the progress of loading, in bytes; may be called before the first step. Thread: any one.
  void progress(uint64_t done, uint64_t total) {
    loaded_.store(done, std::memory_order_relaxed);
    to_load_.store(total, std::memory_order_relaxed);
  }

  // Publishes the terms (Heartbeat::terms, at most kMaxNameBytes), because this rank has loaded and
  // can join an epoch at once. Thread: any.
  void ready(std::string_view terms) {
    MutexLock lock(mutex_);
    terms_ = terms;
  }

  // Sets how many replicas of experts this rank can hold in each layer (Heartbeat::max_replicas).
  // Thread: any.
  void set_max_replicas(int replicas) { max_replicas_.store(replicas, std::memory_order_relaxed); }

  // Sets the ranks whose datagrams have stopped (Heartbeat::unreachable). Thread: the control
  // plane's.
  void set_unreachable(const RankSet& ranks) {
    MutexLock lock(mutex_);
    unreachable_ = ranks;
  }

  // Says that this rank drains and then ends. Thread: any.
  void leave() { leaves_.store(true, std::memory_order_relaxed); }

  Heartbeat heartbeat() const {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    MutexLock lock(mutex_);
    return {.step = step_.load(kRelaxed),
            .stage = stage_.load(kRelaxed),
            .state = state_.load(kRelaxed),
            .expected_ms = expected_ms_.load(kRelaxed),
            .loaded = loaded_.load(kRelaxed),
            .to_load = to_load_.load(kRelaxed),
            .terms = terms_,
            .leaves = leaves_.load(kRelaxed),
            .max_replicas = max_replicas_.load(kRelaxed),
            .unreachable = unreachable_};
  }

 private:
  std::atomic<uint64_t> step_{0};
  std::atomic<uint32_t> stage_{0}, expected_ms_{0};
  std::atomic<EngineState> state_{EngineState::closed};
  std::atomic<uint64_t> loaded_{0}, to_load_{0};
  std::atomic<bool> leaves_{false};
  std::atomic<int> max_replicas_{-1};
  mutable Mutex mutex_;
  std::string terms_ HOCKET_GUARDED_BY(mutex_);
  RankSet unreachable_ HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
