// How ranks that share the experts keep step: before each step every rank says what it has to run,
// and all know then who computes and how rows travel.
//
//   rank 0   schedule: 3 rows, decode --.        .-- step 7, slotted
//   rank 1   schedule: nothing        --+ agree -+-- step 7, idle: no rows of its own
//   rank 2   woken by a message: none --'        '-- step 7, idle
//
// Nobody has rows: nobody runs, and each sleeps until it has work or another begins an agreement.
// So nobody waits for a message that another decided not to send.
// Source: docs/contracts/expert_parallel.md, "Lockstep".
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "compute/comm/all_to_all.h"
#include "compute/moe/dispatcher.h"
#include "policy/scheduler/outside.h"

namespace hocket {

// One rank's part. Thread: engine, but for wake().
class Lockstep final : public Outside {
 public:
  explicit Lockstep(int num_ranks);
  // A new epoch: steps count from 0, over these. Both outlive all calls until the next rebind().
  void rebind(Transport& transport, AllToAll& exchange);

  int rank() const { return exchange_->rank(); }

  // Tells the others and hears them, which takes as long as the slowest of them needs to get here.
  // False too when a rank was lost: see lost().
  bool agree(const Batch& mine) override;

  // Of the last agreement: how the pass is to be played, and whether all stop after it.
  const PassId& pass() const { return pass_; }
  bool ends() const { return ends_; }
  // The first failed exchange; nothing is agreed from then on.
  const std::optional<Error>& lost() const { return error_; }
  // Whom it blames; -1: nobody in particular.
  int lost_peer() const { return exchange_->lost_peer(); }
  void fail_with(Error why);

  // From the next agreement on, this rank asks all to stop.
  void ask_to_end() { asks_to_end_ = true; }
  // Whether another rank has begun the next agreement, or none can be made any more.
  bool called();
  // Until called(), wake() or for `most`.
  void wait(Duration most);

 private:
  Transport* transport_ = nullptr;
  AllToAll* exchange_ = nullptr;
  PassId pass_;
  bool asks_to_end_ = false, ends_ = false;
  std::optional<Error> error_;
  std::vector<AllToAll::Parts> parts_;  // [ranks]
};

}  // namespace hocket
