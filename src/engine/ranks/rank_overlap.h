// What a rank does about overlap: books where the time of its steps went, reports it to the others,
// and, on rank 0, plans the next step for all.
//
//   begin  intake  settle --.  heard  schedule  prepare  forward  end   intake  open  sample ...
//   |------- step n --------+---------------------------------------|---------- step n + 1 ------
//                           '- reports of n - 1, of all ranks         '- report of n, plans of n+1
//
// A step is booked from the end of one forward pass to the end of the next, so that what is
// reported with an agreement is whole: sampling and answering of step n count to step n + 1. One
// that comes to nothing is dropped, as is what follows the last one.
// Source: docs/contracts/overlap.md, "Agreement".   Thread: engine, but for what is marked "any".
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "compute/overlap/ledger.h"
#include "compute/overlap/planner.h"
#include "engine/forecast/stage_forecast.h"
#include "engine/ranks/half_packing.h"
#include "engine/ranks/lockstep.h"
#include "engine/ranks/overlap_settings.h"
#include "engine/watch/overlap_stats.h"
#include "engine/watch/profile.h"
#include "engine/watch/recent_steps.h"

namespace hocket {

class RankOverlap {
 public:
  struct Options {
    int rank = 0, num_ranks = 1;
    LayerCounts layers;
    const OverlapSettings* settings = nullptr;  // outlives it
    std::shared_ptr<const StageModel> prior;    // may be null
    int row_tile = 1;                           // Planner::Options
    bool exact_arrival = false;                 // TransportCaps, until rebind()
    const Clock* clock = nullptr;               // that of the transport; outlives it
    Profiler* profiler = nullptr;               // outlives it; may be null
    RecentSteps* recent = nullptr;              // likewise
  };
  explicit RankOverlap(const Options& options);

  // The ranks met, over a network that tells arrivals so exactly.
  void rebind(bool exact_arrival);
  Ledger& ledger() { return *ledger_; }

  // A turn begins: a step is open from here on, if none is.
  void begin();
  // Nothing came of the step that is open.
  void drop() { is_open_ = false; }
  // After the forward pass: the step is booked, and the next one is open.
  void end();
  // Of the last step that was booked.
  const StepAccount& account() const { return account_; }

  // After settle(): what the others said.
  void heard(const Lockstep& lockstep);
  // For open() or settle(): this rank's report, which is given once, and the plans that it
  // proposes.
  void tell(const Lockstep& lockstep, StepWish& wish);
  // How answers are packed for this plan; nothing for one half.
  std::optional<HalfPacking> packing(const Plan& plan) const;

  // Who proposes instead of the planner; for tests, before anything runs.
  using Proposer = std::function<PlanProposal(Phase)>;
  void propose_by(Proposer proposer) { proposer_ = std::move(proposer); }

  // Thread: any.
  OverlapStats stats() const;
  std::optional<PlannerState> planner_state() const;

 private:
  PlanProposal propose(Phase phase, int rows);
  void add_up();

  const Options options_;
  double keys_a_row_ = HalfPacking().keys_a_row;
  std::optional<Ledger> ledger_;
  std::optional<Planner> planner_;  // on rank 0 of several
  Proposer proposer_;
  bool is_open_ = false;
  StepAccount account_;
  StepReport report_;
  // Of the last step of each phase.
  struct Seen {
    int rows = 0;
    double keys_a_row = 0;
  };
  std::array<Seen, kNumPhases> seen_;
  std::array<PlanProposal, kNumPhases> proposed_;
  uint64_t num_unknown_ = 0;
  mutable std::mutex mutex_;
  // Under mutex_.
  OverlapStats stats_;  // but for `plan`
  std::array<std::optional<Plan>, kNumPhases> last_plans_;
};

}  // namespace hocket
