// The loop of one rank of the engine: the thread that runs its steps (step.h), its mailbox, and its
// epochs with the other ranks.
//
//   join_epoch -> has_work? run a step : wait_for_work -> .. -> should_exit -> leave the epoch
//
// Thread: any for the public functions; one caller makes, starts, steps and joins it.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "base/mailbox.h"
#include "base/thread.h"
#include "engine/messages.h"
#include "engine/rank_report.h"
#include "engine/step.h"

namespace hocket {

class RankLoop {
 public:
  explicit RankLoop(RankParts parts);

  void start(Outbox& outbox);
  void ask_to_stop();
  void join();
  // Run a step, or its intake, on the calling thread. For benches and tests, not after start().
  bool step(Outbox& outbox);
  void intake() { step_.intake(); }

  // Returns false if the mailbox is full.
  [[nodiscard]] bool submit(RequestInput& input);
  // Waits for room, but not for long, because the next step empties a full mailbox. If the mailbox
  // has stayed full for kControlWait, the rank hangs: the command is dropped and that is logged.
  void push_control(Command command);

  int rank() const { return network_ ? network_->rank() : 0; }
  RankLoad load() const { return report_.load(); }
  int num_queued() const { return report_.num_queued(); }
  RankStats stats() const;
  std::vector<RequestSnapshot> requests() { return report_.requests(); }
  // Returns the loads that all ranks sent with the last step, this rank's own included.
  std::vector<RankLoad> agreed_loads() const;
  // Returns why no step can run, naming the missing rank; nullopt while connected, and for the only
  // rank.
  std::optional<Error> lost() const;
  // True if requests are accepted although no step can run now, because this rank is joining those
  // that serve.
  bool serves_soon() const;
  // Returns why no step can ever run again.
  std::optional<Error> failure() const;
  // Returns another rank that asks to stop, so that no request should begin; -1: none.
  int stopping_peer() const {
    return step_.epochs().lockstep() != nullptr ? step_.epochs().lockstep()->stopping_peer() : -1;
  }
  RankOverlap& overlap() { return step_.overlap(); }  // its functions say which thread may call
  const Speculation* speculation() const { return step_.requests().drafts().speculation(); }
  KvEventChannel* kv_events() const { return step_.requests().kv_events(); }

 private:
  void run(Outbox& outbox);
  void join_epoch();
  bool has_work();
  void wait_for_work();
  bool should_exit() const;
  bool waits_for_room();
  void wake();

  const RealClock real_clock_;
  const Clock& clock_;
  const std::unique_ptr<RankNetwork> network_;  // null for the only rank
  const Duration drain_time_;
  Mailbox<Command> commands_;
  RankReport report_;
  RankStep step_;
  // The time at which push_control() found the mailbox full; 0: it had room.
  std::atomic<int64_t> full_since_ns_{0};
  std::atomic<bool> drops_{false};  // true after it logged that it drops commands
  std::atomic<bool> stopping_{false}, threaded_{false};
  std::atomic<int64_t> stop_by_ns_{0};  // deadline once stopping
  Thread thread_;
};

}  // namespace hocket
