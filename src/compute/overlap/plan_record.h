// All that the planner knows of one bucket: the plan that it plays, the plans that a search
// predicted, and how far predictions were off. Thread: engine.
#pragma once

#include <array>
#include <vector>

#include "compute/overlap/fit.h"
#include "compute/overlap/search.h"

namespace hocket {

constexpr size_t index_of(PlanKind kind) {
  return static_cast<size_t>(kind);
}
// The ratio of measured to predicted time of each PlanKind.
using KindRatios = std::array<MeasuredRatio, kNumPlanKinds>;

// The expected time of a plan: the prediction, corrected by what was measured.
struct Expected {
  double us = 0;         // 0: unknown
  double error = 0;      // standard error of the correction, as a share of `us`
  int num_measured = 0;  // steps by this plan that count
};

// Corrects predictions in one bucket. A plan that was not played there is corrected by the ratio of
// its kind; a kind that was not, by its ratio in other buckets, else by that of the played plan,
// because both predictions are made of the same times.
class PlanRecord;
class Correction {
 public:
  explicit Correction(const PlanRecord& record);
  Expected of(const Candidate& candidate) const;
  // Returns how far the prediction of an unmeasured plan may be off, as a share.
  double doubt() const { return doubt_; }
  int num_measured(PlanKind kind) const;

 private:
  const PlanRecord& record_;
  std::array<double, kNumPlanKinds> of_kind_{};
  double noise_ = 0;  // relative spread of single steps
  double doubt_ = 0;
};

class PlanRecord {
 public:
  PlanRecord(size_t most_candidates, const std::array<KindRatios, kNumPhases>* of_phases);
  // Forgets everything and begins with `plan`. Allocates nothing.
  void begin(const Bucket& size, const Candidate& first);
  Bucket size() const;  // the mean of its steps
  void note_size(const StepReport& step);
  // Adds a step that took `ratio` times as long as predicted.
  void note_ratio(const Candidate& played, double ratio);
  // Makes all that was measured count as a guess, because conditions have changed.
  void weaken();
  void adopt(const Candidate& candidate);

  // Returns the least expected time of each kind [us]; 0: unknown.
  std::array<double, kNumPlanKinds> least_us() const;

  // Returns how much longer the played plan is expected to take than the best, as a share.
  double cost() const;

  Bucket border;                               // identifies the bucket
  Candidate played;                            // the plan of all steps except trials, as predicted
  SearchAnswer found;                          // the last search; without candidates: none yet
  RunningMedian<kTuning.remembered> measured;  // step times of `played` since it was adopted [us]
  int streak = 0;        // score of the steps in a row in which another plan was better
  int calm = 0;          // steps since the plan or the links changed
  int searched_ago = 0;  // steps since the last search
  int trials_left = kTuning.first_trials;  // steps of trials that need not be rare
  bool is_told = false, has_news = false;  // a line about it was logged; one is to be logged
  uint64_t num_steps = 0, num_trial_steps = 0, num_changes = 0, last_used = 0;

 private:
  friend class Correction;
  struct OfPlan {
    Plan plan;
    MeasuredRatio ratio;  // without measurements, the place is free
    uint64_t last_used = 0;
  };
  double rows_ = 0, keys_ = 0;
  std::array<OfPlan, kTuning.ratios_of_plans> of_plans_{};
  KindRatios of_kinds_;
  const std::array<KindRatios, kNumPhases>* of_phases_;  // over all buckets
};

}  // namespace hocket
