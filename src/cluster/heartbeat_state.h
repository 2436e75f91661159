// Holds the state that the heartbeat sends: the progress of the thread that computes (a few relaxed
// stores), the terms on which this rank would join an epoch, whether it leaves, and the ranks that
// it does not hear.
//
//   begin(step, expected)   a step is open: from here on, standing still is suspicious
//   reached(stage)          the step moves
//   waiting(), computing()  before and after waits for other ranks' messages
//   end()                   the step is closed
//
// A rank whose open step is beyond its expected time and stands still for as long as a silent rank
// would be given is lost. So a hung compute thread is noticed though its process lives. Waits do
// not count, because a rank that waits for a hung one stands still as well.
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

class HeartbeatState {
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

  // Says that this rank has loaded and can join an epoch at once, on these terms
  // (Heartbeat::terms), at most kMaxNameBytes. Thread: any.
  void ready(std::string_view terms) {
    MutexLock lock(mutex_);
    terms_ = terms;
  }

  // Says for how many replicas of experts in each layer this rank has memory
  // (Heartbeat::max_replicas). Thread: any.
  void set_max_replicas(int replicas) { max_replicas_.store(replicas, std::memory_order_relaxed); }

  // Says which ranks this one hears no longer (Heartbeat::unreachable). Thread: the control
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
