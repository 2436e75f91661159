// The steps of one rank: the actions, one function each, in their order. The objects that a step
// works on each have a class: requests (rank_requests.h), the other ranks (rank_epochs.h), the
// forward thread (overlapped_steps.h). rank_loop.h has the thread that calls run().
//
//   join_epoch() .. run(), run(), .. -> epochs().leave(), also if a step is given up (several
//   ranks)
//
// Thread: engine. Other threads may use what RankOverlap, RankRequests and RankExperts allow them.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "base/mailbox.h"
#include "engine/flight.h"
#include "engine/lockstep/rank_overlap.h"
#include "engine/overlapped_steps.h"
#include "engine/prepare.h"
#include "engine/rank_epochs.h"
#include "engine/rank_experts.h"
#include "engine/rank_parts.h"
#include "engine/rank_report.h"
#include "engine/rank_requests.h"
#include "engine/runner/runner.h"
#include "engine/sampler.h"

namespace hocket {

class RankStep {
 public:
  // The objects around the steps; all outlive it.
  struct Context {
    const Clock& clock;
    RankNetwork* network = nullptr;  // null for the only rank
    Mailbox<Command>& commands;
    RankReport& report;
    std::function<void()> wake;  // makes the rank look for work; any thread may call it
  };
  RankStep(RankParts parts, const Context& around);

  // Called by the thread that will run the steps, before the first of them; without it run()'s
  // caller does both.
  void adopt_thread();
  // Runs a step. Returns false if there was nothing to run, or ranks were lost.
  bool run();
  // The action intake: takes in all commands that have arrived.
  void intake();
  void handle(Command& command);
  // Returns true if a request waits or runs, a command has arrived, or another rank begins a step.
  bool has_work();
  // Publishes the figures of a rank with nothing to run.
  void publish_idle();
  // Ends all requests with `why`.
  void end_all(const Error& why);

  // Makes this rank part of an epoch. Errors: out_of_memory.
  Result<void> join_epoch(const RankNetwork::Link& link);
  // Begins to load the experts of this rank in an epoch of `ranks`; requests that wait for lost
  // ranks wait as much longer as that takes. Returns true if they are there, so that the rank may
  // join the others.
  bool load_experts(const RankSet& ranks);
  // Takes in commands while ranks are missing, and ends the requests that have waited for them too
  // long.
  void wait_for_ranks();
  // Returns the ledger of the open step; null if another thread computes, which has it then.
  Ledger* ledger() { return overlapped_.ledger(); }

  RankEpochs& epochs() { return epochs_; }
  const RankEpochs& epochs() const { return epochs_; }
  RankRequests& requests() { return requests_; }
  const RankRequests& requests() const { return requests_; }
  // Other threads may call the functions of these two that say so.
  RankOverlap& overlap() { return overlap_; }
  const RankOverlap& overlap() const { return overlap_; }
  // Returns what moves experts; null without --enable-eplb and --tolerate-ranks.
  const ExpertMover* mover() const { return experts_.mover(); }

 private:
  Flight* compute_next();
  std::optional<DraftWork> compute_drafts();
  Flight& prepare_next(const Batch& batch, const DraftWork& drafting);
  // Overlapped steps (overlapped_steps.h).
  bool run_overlapped();
  bool agree_overlapped();
  bool drafts_may_come();
  bool finish(Flight& flight);
  bool finish_all();
  void abort_overlapped_steps(const Flight* failed);
  bool follow_choice();

  void commit(Flight& flight);
  void reply(Flight& flight);
  bool restore_pages();
  void copy_delayed_pages();
  void abort_step(std::span<const Batch* const> uncommitted);
  StepProposal propose();
  PrepareOptions prepare_options();

  const RealClock real_clock_;
  const Clock& clock_;
  Mailbox<Command>& commands_;
  RankReport& report_;
  const std::unique_ptr<Runner> runner_;
  RankExperts experts_;  // the lockstep asks its rebalance()
  RankEpochs epochs_;
  RankOverlap overlap_;
  RankRequests requests_;
  Sampler sampler_;
  const StepTools tools_;
  FlightRing flights_;
  // It is last because its thread uses the tools and the flights.
  OverlappedSteps overlapped_;
};

}  // namespace hocket
