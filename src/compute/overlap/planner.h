// Chooses the plan of every step from measured times, and says why. The lowest rank plans for all;
// the plan that it chose travels with the agreement.
//
//   note(reports of the last step) -> fit -> is another plan better? -> adopt it
//   choose(next bucket)            -> search, now and then -> a trial, or the plan of the bucket
//
// A bucket gets another plan when that plan is expected to be faster in several steps in a row, by
// more than a margin and the error of what is known; for a large gain fewer steps are enough. All
// numbers are in tuning.h. Thread: engine, except state(). After construction choose() and note()
// allocate nothing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/trial_pace.h"
#include "compute/overlap/explain.h"
#include "compute/overlap/fit.h"

namespace hocket {

// Plays plans only to measure them. A candidate that could be faster than all others, given the
// possible errors of predictions and measurements, is played for the steps of a trial
// (base/trial_pace.h). In a new bucket, and after a change of the links, first_trial_steps may be
// frequent. Measurements age, so a plan that is not played is tried again.
class Trials {
 public:
  // Returns the plan to try in the next step of this bucket; nothing if the usual one is played.
  std::optional<Plan> next(const PlanRecord& record);
  // True if the step is the first of the trial under way.
  bool is_cold(const StepReport& step) const { return is_tried(step) && pace_.is_cold(); }
  // Counts a step, and returns whether it belongs to a trial.
  bool note(PlanRecord& record, const StepReport& step);
  // Returns false if the last step was of the other phase: then the next step is probably of that
  // phase, too.
  bool is_likely(Phase phase) const { return !last_phase_ || last_phase_ == phase; }

 private:
  // A step that was planned for the bucket may be reported in another bucket of its phase.
  bool is_tried(const StepReport& step) const;

  Plan plan_;
  Bucket border_;  // that of the bucket for which the trial is, and in which alone it is proposed
  TrialPace pace_;
  std::optional<Phase> last_phase_;  // the last step's
};

class Planner {
 public:
  struct Options {
    const OrderTable* orders = nullptr;  // outlives it
    LayerCounts layers;
    std::shared_ptr<const StageModel> prior;  // not null; FittedTimes
    OverlapChoices choices;
    int row_tile = 1;
    const Clock* clock = nullptr;  // outlives it
  };
  explicit Planner(const Options& options);

  // Learns from the reports of all ranks on the last step; invalid ones are passed over.
  void note(std::span<const StepReport> reports);
  // Returns the plan of the next step, if it is of this phase and about this size. It may be called
  // for both phases before it is known which of them is played: the reports show which one it was.
  struct Choice {
    Plan plan;
    bool is_trial = false;
  };
  Choice choose(const Bucket& next);
  // A plan that changed, or a forced plan that costs time.
  struct LogLine {
    std::string text;
    bool is_warning = false;  // about a forced plan
  };
  // Returns a line for the log if there is one. Without `with_changes` those about plans that
  // changed wait, so that nothing is allocated for a log that is off.
  std::optional<LogLine> take_log_line(bool with_changes = true);
  // Returns a copy of what the planner knows.   Thread: any.
  PlannerState state() const;

 private:
  const OverlapChoice& choice_for(const PlanRecord& record) const {
    return options_.choices[index_of(record.border.phase)];
  }
  bool is_automatic(const PlanRecord& record) const {
    return choice_for(record).mode == OverlapChoice::Mode::automatic;
  }
  SearchInput input(const Bucket& bucket) const;
  PlanRecord& record_for(const Bucket& bucket) HOCKET_REQUIRES(mutex_);
  void search_for(PlanRecord& record) HOCKET_REQUIRES(mutex_);
  void decide(PlanRecord& record, bool at_once) HOCKET_REQUIRES(mutex_);
  void renew(PlanRecord& record, const Plan& tried) const HOCKET_REQUIRES(mutex_);
  void measure(PlanRecord& record, const StepReport& step, const Plan& plan)
      HOCKET_REQUIRES(mutex_);

  const Options options_;
  FittedTimes fit_;
  std::array<KindRatios, kNumPhases> ratios_;  // over all buckets
  Trials trials_;
  double credit_us_ = kTuning.first_credit_us;  // time that searches may still take
  uint32_t num_link_shifts_ = 0;
  uint64_t clock_ = 0, shifted_at_ = 0;
  mutable Mutex mutex_;
  std::vector<PlanRecord> records_ HOCKET_GUARDED_BY(mutex_);
  PlannerState totals_ HOCKET_GUARDED_BY(mutex_);  // without decisions
};

}  // namespace hocket
