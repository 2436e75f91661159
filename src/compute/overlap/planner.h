// Chooses the plan of every step from measured times, and says why. One rank plans for all (the
// lowest); what it chose travels with the agreement.
//
//   note(reports of the last step) -> fits -> search, now and then -> choose(next bucket)
//
// A new plan for a bucket is adopted when it is predicted more than kMargin faster for kPatience
// searches on end (half of kMargin where both were measured; each change but those that trials ask
// for asks for twice the patience, calm for less). What is predicted is corrected by what was
// measured: a ratio by plan and bucket, by kind of plan where that one was not played. A plan that
// was adopted lately and takes longer than it should is dropped at once. Finalists prove themselves
// in bursts of a few steps: in a new bucket those that could be better for all that is known of the
// predictions' errors (trials: at most kMostTrialSteps until the links change), later one now and
// then (shadow runs: of any 400 steps four at most). Searching takes never more than kSearchShare
// of the time. Thread: engine, but for state(). After warm-up choose() and note() allocate nothing.
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

// --overlap: what the user allows or forces.
struct OverlapChoice {
  enum class Mode : uint8_t {
    automatic,     // auto
    none,          // none
    single_batch,  // --enable-single-batch-overlap: the best of its kind
    two_batch,     // --enable-two-batch-overlap: likewise
    order,         // the name of an order, of the table or of --overlap-plan
  };
  Mode mode = Mode::automatic;
  int order = 0;  // of Mode::order
};

// A plan that may turn out to be the best of a bucket.
struct Finalist {
  Plan plan;
  std::string name;                          // describe()
  double predicted_us = 0, expected_us = 0;  // expected: corrected by what was measured
  int num_measured = 0;                      // steps of it lately, at most 31
};

// What is said of one bucket, in /overlap and in log lines.
struct OverlapDecision {
  Bucket bucket;  // its upper border
  Plan plan;
  std::string name;                 // of the plan: describe()
  std::vector<Finalist> finalists;  // what is expected to be fastest first
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

  // What every rank reported of the step before; invalid ones are passed over.
  void note(std::span<const StepReport> reports);
  // For the next step, if it is of this phase and about this size. May be asked for both phases
  // before it is known which of them is played: what was is seen in the reports.
  struct Choice {
    Plan plan;
    bool is_shadow = false;  // a finalist's turn
  };
  Choice choose(const Bucket& next);
  // A line for the log about a plan that changed, or a forced one that costs; nothing if none did.
  std::optional<std::string> take_news();
  // A copy.   Thread: any.
  PlannerState state() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
