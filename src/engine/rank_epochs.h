// A rank's part in the epochs: it joins the other ranks, agrees on steps with them, exchanges rows
// with them in passes, and reports a loss. The only rank of an engine has no epochs.
//
//   join() .. begin_pass() end_pass() .. report_loss() leave()
//
// Owner: RankStep. Thread: engine, except begin_pass() and end_pass().
#pragma once

#include <optional>

#include "base/result.h"
#include "engine/flight.h"
#include "engine/lockstep/lockstep.h"
#include "engine/lockstep/network.h"
#include "engine/rank_experts.h"
#include "engine/rank_parts.h"

namespace hocket {

class RankEpochs {
 public:
  // All outlive it; `network` is null for the only rank.
  RankEpochs(const RankParts& parts, RankNetwork* network, Runner& runner, RankExperts& experts);

  bool alone() const { return network_ == nullptr; }
  int rank() const { return network_ != nullptr ? network_->rank() : 0; }
  int num_ranks() const { return network_ != nullptr ? network_->num_ranks() : 1; }
  // Return null for the only rank.
  RankNetwork* network() { return network_; }
  const RankNetwork* network() const { return network_; }
  Lockstep* lockstep() { return lockstep_ ? &*lockstep_ : nullptr; }
  const Lockstep* lockstep() const { return lockstep_ ? &*lockstep_ : nullptr; }
  // Returns the observer of the exchange. Thread: that of the exchange.
  ExchangeObserver& watch() { return watch_; }

  // Makes this rank part of an epoch. Errors: out_of_memory.
  Result<void> join(const RankNetwork::Link& link);
  void leave();
  // True between join() and leave().
  bool joined() const { return joined_; }
  // True if steps can run with the other ranks; false for the only rank.
  bool connected() const { return joined_ && !lockstep_->lost(); }
  // True if all ranks play the plans of this rank, the lead.
  bool leads() const { return lockstep_->lead() == network_->rank(); }

  // Returns true if the other ranks have no requests, as far as their last votes say.
  bool others_are_idle() const;
  // Returns how to play the step that was agreed on.
  AgreedStep agreed() const;
  // Returns the passes of the model's own module before that step; null on the only rank.
  std::optional<std::span<const PassSpec>> module_passes() const;
  // Reports to the other ranks that no step runs here.
  void end_steps();
  // Reports to the other ranks that they were lost in a step of this one.
  void report_loss();
  // Returns the error of requests that end because ranks were lost.
  Error why_lost() const;

  // Begins to load the experts of the next epoch, after leave(), if it is known which ranks it has.
  // Returns how long that takes: every rank knows of the slowest of them. Else, and if experts do
  // not move, 0.
  Duration begin_loading_next();

  // The forward thread computes a pass of the step: the exchange and its watch are its own
  // meanwhile. Thread: forward.
  void begin_pass(const AgreedStep& step, Ledger& ledger);
  void end_pass();

 private:
  RankNetwork* const network_;
  Runner& runner_;
  RankExperts& experts_;
  const Duration stall_timeout_;
  const int tolerate_ranks_;
  ExchangeObserver watch_;
  std::optional<Lockstep> lockstep_;
  bool joined_ = false;
};

}  // namespace hocket
