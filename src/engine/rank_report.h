// The figures of a rank: its load, its counters, the position in its step and its requests. The
// engine's thread writes them, at the latest after each step; other threads read copies, so no
// reader ever waits for a step. Thread: engine, except for the first group of functions.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "cluster/own_heartbeat.h"
#include "engine/flight.h"
#include "engine/stats/engine_stats.h"
#include "engine/stats/request_board.h"
#include "engine/stats/step_log.h"
#include "policy/routing/request_router.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

class RankReport {
 public:
  struct Options {
    int rank = 0;
    int log_interval = 1;                         // StepLog's decode_interval
    std::string log_prefix;                       // StepLog's prefix
    const Clock* clock = nullptr;                 // outlives it
    const OwnHeartbeat* own_heartbeat = nullptr;  // outlives it; null for the only rank
  };
  explicit RankReport(const Options& options);

  // Any thread may call the functions of this group.
  // Counts a request that is put into the mailbox, until count_intake(); forget_submitted() undoes
  // it if the mailbox was full.
  void count_submitted(int64_t num_tokens);
  void forget_submitted(int64_t num_tokens);
  RankLoad load() const { return {.num_requests = load_requests_, .num_tokens = load_tokens_}; }
  // Returns how many requests are in the mailbox, or waited in the queue after the last step.
  int num_queued() const { return num_in_mailbox_ + num_waiting_; }
  // Returns all stats but those of overlap.
  RankStats stats() const;
  std::vector<RequestSnapshot> requests() { return board_.snapshot(clock_.now()); }

  // The engine's thread alone calls all that follow.
  void count_intake(int64_t num_tokens);
  // Notes the action that begins, for the watchdog.
  void begin_action(StepAction next) { action_.store(next, std::memory_order_relaxed); }
  // Notes the action that the forward thread begins, where steps overlap; StepAction::idle: it
  // waits for a step. Thread: forward.
  void begin_forward_action(StepAction next) {
    forward_action_.store(next, std::memory_order_relaxed);
  }
  // Sets whether the rank has work. Returns the value before.
  bool set_busy(bool busy) { return busy_.exchange(busy); }
  // Notes that the rank found nothing to do a moment ago, so it is not stuck.
  void note_alive() { last_alive_ns_ = clock_.now().time_since_epoch().count(); }
  // Adds waits for other ranks, in steps in which any rank has rows.
  void add_agreement_wait(Duration waited) { agreement_waited_ += waited; }
  void add_exchange_wait(Duration waited) { exchange_waited_ += waited; }
  // Adds tokens of requests that began, which were read from stores or peers.
  void count_fetched(const PerTier<int>& tokens) {
    for (size_t i = 0; i < tokens.size(); ++i)
      fetched_tokens_[i] += static_cast<uint64_t>(tokens[i]);
  }
  void count_end(FinishReason finish);
  // Publishes a step after its commit. transfers: set if there are several ranks.
  void publish(const Flight& flight, const Scheduler& scheduler, TimePoint now,
               const std::optional<StepTransfers>& transfers);
  // Publishes that there is nothing to run.
  void publish_idle(const Scheduler& scheduler);

 private:
  StepPosition position() const;
  void publish_load(const SchedulerStats& now);
  void note_step(const Flight& flight, const SchedulerStats& now) const;

  const int rank_;
  const Clock& clock_;
  const OwnHeartbeat* const own_heartbeat_;
  StepLog step_log_;
  RequestBoard board_;
  Duration exchange_waited_{}, agreement_waited_{};
  PerTier<uint64_t> fetched_tokens_{};
  // Requests and prompt tokens: taken in since the last publish_load(), and published by it.
  int new_requests_ = 0, published_requests_ = 0;
  int64_t new_tokens_ = 0, published_tokens_ = 0;

  std::atomic<int> num_in_mailbox_{0};   // requests in the mailbox
  std::atomic<int> num_waiting_{0};      // in the scheduler's queue after the last step
  std::atomic<int> load_requests_{0};    // in the mailbox, waiting or running
  std::atomic<int64_t> load_tokens_{0};  // RankLoad::num_tokens of these
  std::atomic<int64_t> last_alive_ns_;   // end of the last step, or of the last note_alive()
  std::atomic<bool> busy_{false};
  std::atomic<StepAction> action_{StepAction::idle};
  // The action of the forward thread, where steps overlap.
  std::atomic<StepAction> forward_action_{StepAction::idle};
  mutable Mutex mutex_;
  RankStats stats_ HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
