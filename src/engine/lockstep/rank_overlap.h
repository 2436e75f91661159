// Handles overlap on one rank: books the time of its steps, reports it to the other ranks, and on
// the lead plans the next step for all.
//
//   begin  intake  finish --.  note   schedule  prepare  forward  end   intake  begin  sample ...
//   |------- step n --------+---------------------------------------|---------- step n + 1 ------
//                           '- reports of n - 1, of all ranks         '- report of n, plans of n+1
//
// (finish and begin are those of the agreement, lockstep.h.) A step is booked from the end of one
// forward pass to the end of the next, so that its report is complete when the next agreement
// begins: sampling and answering of step n count to step n + 1. The times of a step that does not
// run, and the time after the last step, are dropped. Where steps overlap, the forward thread books
// them, and its waits for the next one too; then a step's report leaves an agreement later. Source:
// docs/contracts/overlap.md, "Agreement". Thread: engine, except where marked "any" or "computes":
// the thread that computes.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "compute/overlap/ledger.h"
#include "compute/overlap/planner.h"
#include "engine/lockstep/half_packing.h"
#include "engine/lockstep/lockstep.h"
#include "engine/lockstep/overlap_settings.h"
#include "engine/plan/stage_estimate.h"
#include "engine/stats/overlap_stats.h"
#include "engine/stats/profiler.h"
#include "engine/stats/recent_steps.h"

namespace hocket {

class RankOverlap {
 public:
  struct Options {
    int rank = 0, num_ranks = 1;
    int tolerate_ranks = 0;  // number of ranks that may be missing
    LayerCounts layers;
    const OverlapSettings* settings = nullptr;  // outlives it
    std::shared_ptr<const StageModel> prior;    // not null
    int row_tile = 1;                           // Planner::Options::row_tile
    bool exact_arrival = false;                 // TransportCaps::exact_arrival, until rebind()
    const Clock* clock = nullptr;               // clock of the transport; outlives it
    Profiler* profiler = nullptr;               // outlives it; may be null
    RecentSteps* recent = nullptr;              // outlives it; may be null
  };
  explicit RankOverlap(const Options& options);

  // Starts a new epoch. exact_arrival: the network reports exact times of arrival. plans: what this
  // rank plans is what all play.
  void rebind(bool exact_arrival, bool plans);
  Ledger& ledger() { return *ledger_; }

  // Opens a step, unless one is open. Thread: computes.
  void begin();
  // Drops the open step, because it does not run. Thread: computes.
  void drop() { is_open_ = false; }
  // Books the step after its forward pass, and opens the next one. Thread: computes.
  StepAccount end();
  // Takes in the times of a booked step, to report them.
  void take(const StepAccount& account) { report_ = account.report(); }

  // Takes in the reports of all ranks, after finish_agreement().
  void note_reports(const Lockstep& lockstep);
  // Fills this rank's report, once per step, and on the lead the plans, for begin_agreement() or
  // finish_agreement().
  void fill(const Lockstep& lockstep, StepProposal& proposal);
  // Returns how to pack decode rows for this plan; nullopt if it has one half.
  std::optional<HalfPacking> packing(const Plan& plan) const;

  // These may be called by any thread.
  OverlapStats stats() const;
  std::optional<PlannerState> planner_state() const;

 private:
  friend class EngineProbe;

  PlanProposal propose(Phase phase, int rows);
  void add_up(const StepAccount& account);

  const Options options_;
  double keys_per_row_ = HalfPacking().keys_per_row;
  std::optional<Ledger> ledger_;
  std::optional<Planner> planner_;               // on the ranks of several that may have to plan
  std::function<PlanProposal(Phase)> proposer_;  // tests alone set it, in place of the planner
  std::atomic<bool> plans_{false};
  bool is_open_ = false;
  StepReport report_;
  // The last step of each phase, as slowest_of() reports it.
  struct LastStep {
    int rows = 0;
    double keys_per_row = 0;
  };
  std::array<LastStep, kNumPhases> last_steps_;
  std::array<PlanProposal, kNumPhases> proposed_;
  uint64_t num_unknown_ = 0;
  mutable Mutex mutex_;
  OverlapStats stats_ HOCKET_GUARDED_BY(mutex_);  // `plan` is filled by stats()
  std::array<std::optional<Plan>, kNumPhases> last_plans_ HOCKET_GUARDED_BY(mutex_);
};

}  // namespace hocket
