// Chooses the plan of every step from measured times, and says why. The lowest rank plans for all;
// the plan that it chose travels with the agreement.
//
//   note(reports of the last step) -> fits -> search, now and then -> choose(next bucket)
//
// A bucket's plan is changed when another one is predicted more than kMargin faster in kPatience
// searches in a row. The margin is half of that if both plans were measured, and smaller between
// plans of one kind. Each change doubles the patience, unless trials caused it; calm steps halve
// it. A plan that was adopted lately and takes longer than expected is dropped at once.
//
// Predictions are corrected by what was measured: by the ratio of the plan in this bucket, or of
// its kind if the plan was not played here. Finalists are measured in bursts of a few steps. In a
// bucket without trials yet these are all that could be the best in view of the errors of
// predictions (trials: at most kMostTrialSteps until the links change); later it is one now and
// then (shadow runs: at most four in any 400 steps).
//
// Searching takes at most kSearchShare of the time, apart from the first 5 ms. Thread: engine,
// except state(). After warm-up choose() and note() allocate nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "compute/overlap/fit.h"
#include "compute/overlap/search.h"

namespace hocket {

// The value of --overlap: what the user allows or forces.
struct OverlapChoice {
  enum class Mode : uint8_t {
    automatic,     // auto
    none,          // none
    single_batch,  // --enable-single-batch-overlap: the best of its kind
    two_batch,     // --enable-two-batch-overlap: the best of its kind
    order,         // the name of an order, of the table or of --overlap-plan
  };
  Mode mode = Mode::automatic;
  int order = 0;  // only Mode::order: index in the table
};

// A plan that may prove to be the best of a bucket.
struct Finalist {
  Plan plan;
  std::string name;                          // describe()
  double predicted_us = 0, expected_us = 0;  // expected: corrected by what was measured
  int num_measured = 0;                      // how many of its last steps count, at most 31
};

// The decision for one bucket, as /overlap and log lines show it.
struct OverlapDecision {
  Bucket bucket;  // the upper border of the bucket
  Plan plan;
  std::string name;                 // describe() of the plan
  std::vector<Finalist> finalists;  // sorted, the one expected to be fastest first
  std::string text;                 // "decode, 64 rows: none (two halves predicted -4 %: ...)"
  double predicted_us = 0, measured_us = 0, none_us = 0;
  double lower_bound_us = 0, three_halves_us = 0;
  uint64_t num_steps = 0, num_shadow_steps = 0, num_trial_steps = 0, num_changes = 0;
};

struct PlannerState {
  std::vector<OverlapDecision> decisions;  // prefill first, rows ascending
  uint64_t num_steps = 0, num_shadow_steps = 0, num_trial_steps = 0, num_searches = 0;
  double search_seconds = 0;
};

class Planner {
 public:
  struct Options {
    const OrderTable* orders = nullptr;  // outlives it
    LayerCounts layers;
    std::shared_ptr<const StageModel> prior;  // may be null
    OverlapChoice choice;
    int row_tile = 1;
    int most_parts = kMaxParts;
    const Clock* clock = nullptr;  // outlives it
  };
  static constexpr double kMargin = 0.03, kShadowShare = 0.01, kSearchShare = 0.003;
  static constexpr int kPatience = 3, kMostTrialSteps = 128;

  explicit Planner(const Options& options);
  ~Planner();

  // Learns from the reports of all ranks on the last step; invalid ones are passed over.
  void note(std::span<const StepReport> reports);
  // Returns the plan of the next step, if it is of this phase and about this size. It may be called
  // for both phases before it is known which of them is played: the reports show which one it was.
  struct Choice {
    Plan plan;
    bool is_shadow = false;  // it is the turn of a finalist
  };
  Choice choose(const Bucket& next);
  // Returns a line for the log about a plan that changed, or about a forced plan that costs time;
  // nothing if there is none.
  std::optional<std::string> take_news();
  // Returns a copy of what the planner knows.   Thread: any.
  PlannerState state() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
