// All that the planner knows of one bucket: the plan that it plays, the plans that a search
// predicted, and how far predictions were off. Thread: engine.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "compute/overlap/fit.h"
#include "compute/overlap/search.h"

namespace hocket {

constexpr size_t index_of(PlanKind kind) {
  return static_cast<size_t>(kind);
}

// The median of measured / predicted times. After a shift the older values are forgotten.
class MeasuredRatio {
 public:
  void add(double ratio);
  // Makes the median count as `max_count` measurements at most, because conditions have changed.
  void weaken(int max_count);
  // Halves the number of measurements that count, but leaves one, if there is any.
  void age() { weaken(std::max(count() / 2, 1)); }
  int count() const { return median_.count(); }
  double median() const { return median_.median(); }  // 0 without values
  // Returns the weighted mean of the median and a guess.
  double value(double guess) const {
    return (count() * median() + kTuning.guess_weight * guess) / (count() + kTuning.guess_weight);
  }
  // Returns the relative standard error of value(), if single measurements differ by `spread`.
  double error(double spread) const {
    return spread * std::sqrt(count()) / (count() + kTuning.guess_weight);
  }
  double spread() const { return spread_; }  // relative, of single measurements

 private:
  RunningMedian<kTuning.ratios> median_;
  std::array<float, kTuning.slower> last_{};
  double spread_ = 0;
  ShiftDetector watch_{kTuning.far_ratio, {kTuning.slower, kTuning.faster}};
};
using KindRatios = std::array<MeasuredRatio, kNumPlanKinds>;  // by PlanKind

// The expected time of a plan: the prediction, corrected by what was measured.
struct Expected {
  double us = 0;         // 0: unknown
  double error = 0;      // standard error of the correction, as a share of `us`
  int num_measured = 0;  // steps by this plan that count
};

class PlanRecord {
 public:
  // of_phases: the ratios over all buckets, by Phase; they outlive it.
  PlanRecord(size_t max_candidates, const std::array<KindRatios, kNumPhases>* of_phases);
  // Forgets everything and begins with `plan`. Allocates nothing.
  void begin(const Bucket& size, const Candidate& first);
  Bucket size() const;  // the mean of its steps
  // Counts a step for which the bucket's plan was chosen. The step may be reported in another
  // bucket, or never.
  void note_asked() { ++num_asked_since_change, ++num_asked_since_search; }
  void note_size(const StepReport& step);
  // Adds a step that took `ratio` times as long as predicted.
  void note_ratio(const Candidate& played, double ratio);
  // Makes all that was measured count as a guess, because conditions have changed.
  void weaken();
  void adopt(const Candidate& candidate);

  // Returns the least expected time of each kind [us]; 0: unknown.
  std::array<double, kNumPlanKinds> min_us() const;
  // Returns how much longer the played plan is expected to take than the best, as a share.
  double cost() const;

  Bucket border;       // identifies the bucket
  Candidate played;    // the plan of all steps except trials, as predicted
  SearchResult found;  // the last search; without candidates: none yet
  RunningMedian<kTuning.median_steps> measured;  // step times of `played` since it was adopted [us]
  int evidence = 0;  // that another plan is better: kTuning.evidence_needed steps
  // How often its plan was asked for since the plan or the links changed, and since the search.
  int num_asked_since_change = 0, num_asked_since_search = 0;
  int num_remaining_trial_steps = kTuning.first_trial_steps;  // they need not be rare
  bool is_logged = false, has_log_line = false;  // a line about it was logged; one is to be logged
  uint64_t num_steps = 0, num_trial_steps = 0, num_changes = 0, last_used = 0;

 private:
  friend class Correction;
  struct PlanRatio {
    Plan plan;
    MeasuredRatio ratio;  // without measurements, the place is free
    uint64_t last_used = 0;
  };
  double rows_ = 0, keys_ = 0;
  std::array<PlanRatio, kTuning.ratios_of_plans> of_plans_{};
  KindRatios of_kinds_;
  const std::array<KindRatios, kNumPhases>* of_phases_;
};

// Corrects predictions in one bucket by the first of these ratios that was measured: the plan's
// there, its kind's there, its kind's in other buckets, and that of the played plan, since both
// predictions are made of the same times.
class Correction {
 public:
  explicit Correction(const PlanRecord& record);
  Expected of(const Candidate& candidate) const;
  // Returns how far the prediction of an unmeasured plan may be off, as a share.
  double uncertainty() const { return uncertainty_; }
  int num_measured(PlanKind kind) const { return record_.of_kinds_[index_of(kind)].count(); }

 private:
  const PlanRecord& record_;
  std::array<double, kNumPlanKinds> of_kind_{};
  double noise_ = 0;  // relative spread of single steps
  double uncertainty_ = 0;
};

}  // namespace hocket
