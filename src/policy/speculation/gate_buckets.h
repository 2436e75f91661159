// The sizes of steps that the gate distinguishes, and all that it has measured of each. A size that
// has none of the kGate.max_buckets buckets takes that of the size which was used longest ago.
// Owner: SpeculationGate. Thread: engine. find() allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/running_median.h"
#include "policy/scheduler/step_times.h"
#include "policy/speculation/draft_costs.h"
#include "policy/speculation/gate_state.h"
#include "policy/speculation/gate_tuning.h"

namespace hocket {

// How a step gets its drafts: `now`, all when it is made, by the only drafter or the free one;
// `ahead`, also from a drafter that drafts_ahead(), which made them before.
enum class DraftWay : uint8_t { now, ahead };

// One size of steps.
struct GateBucket {
  // Costs and choices of its steps with drafts that were made now, or ahead.
  struct WayState {
    DraftCosts costs;
    GateChoice usual, best;                         // as in GateState
    int num_remaining_trials = kGate.first_trials;  // steps of trials that need not be rare
  };

  int num_answers = 0;           // the border; 0: the bucket is free
  int64_t answer_keys = 0;       // the border of keys of one answer
  std::array<WayState, 2> ways;  // by DraftWay; steps without drafts are noted in both
  RunningMedian<kGate.remembered> plain_steps;  // times of steps without drafts
  double tokens_mean = 1, time_ratio_mean = 1;  // means of its last choices, as in GateChoice
  double plain_us = 0;                          // time that its last step takes without drafts
  StepShape last_shape;                         // that of its last step, without drafts
  uint64_t num_steps = 0, num_draft_steps = 0, num_trial_steps = 0, last_used = 0;
  uint64_t last_plain = 0;  // num_steps at its last step without drafts

  WayState& way(DraftWay which) { return ways[static_cast<size_t>(which)]; }
  const WayState& way(DraftWay which) const { return ways[static_cast<size_t>(which)]; }
  int num_plain() const { return ways[0].costs.num_plain(); }
  // Returns the tokens that an answer usually gets in the time of a step without drafts.
  double tokens_per_plain_step() const;
  // Notes the time of its last step, which is plain. Returns the time that counts; 0: none yet.
  double note_plain(double us);
};

class GateBuckets {
 public:
  GateBuckets() : buckets_(static_cast<size_t>(kGate.max_buckets)) {}

  struct Found {
    GateBucket& bucket;
    bool is_new = false;  // the size had none
  };
  // Returns the bucket of steps with num_answers answers, whose keys are total_keys together.
  // growth: that of the costs of a new one, as in DraftCosts::begin().
  Found find(int num_answers, int64_t total_keys, double growth);
  // Says that the times of steps without drafts, to which all costs refer, are predicted anew.
  void change_reference(const StepTimes& before, const StepTimes& now);
  // Returns copies of those with steps, ascending. drafts_ahead: the drafter makes drafts ahead.
  std::vector<GateState::Bucket> copies(bool drafts_ahead) const;

 private:
  std::vector<GateBucket> buckets_;
  uint64_t clock_ = 0;
};

}  // namespace hocket
