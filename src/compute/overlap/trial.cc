#include "compute/overlap/trial.h"

#include <cmath>

namespace hocket {
namespace {

// Returns the candidate with the lowest optimistic time, which is its expected time less its
// uncertainty; nothing if another one is expected to be faster than even that.
std::optional<Plan> most_promising(const PlanRecord& record) {
  const Correction correction(record);
  if (correction.doubt() < kTuning.certain) return std::nullopt;
  double best_us = correction.of(record.played).us, least_us = best_us;
  const Candidate* best = nullptr;
  for (const Candidate& candidate : record.found.candidates) {
    const Expected expected = correction.of(candidate);
    best_us = std::min(best_us, expected.us);
    if (candidate.plan == record.played.plan) continue;
    // Returns the rest of a doubt when n steps were measured.
    const auto left = [](double doubt, int n) {
      return doubt * kTuning.guess / (n + kTuning.guess);
    };
    const int of_kind = correction.num_measured(candidate.kind);
    const double reach = of_kind < kTuning.few
                             ? left(kTuning.doubt_of_kind, of_kind)
                             : left(correction.doubt(), expected.num_measured) +
                                   (expected.num_measured > 0 ? expected.error : 0);
    const double us = expected.us * (1 - reach);
    if (best == nullptr || us < least_us) best = &candidate, least_us = us;
  }
  return best != nullptr && least_us < best_us ? std::optional(best->plan) : std::nullopt;
}

}  // namespace

std::optional<Plan> Trials::next(const PlanRecord& record) {
  if (proposals_left_ > 0 && record.border.phase == phase_) {
    --proposals_left_;
    return plan_;
  }
  const bool may_begin = notes_left_ == 0 && last_phase_ == record.border.phase &&
                         record.measured.count() >= kTuning.few;
  const bool is_rare = since_ * kTuning.trial_share >= kTuning.burst;
  if (!may_begin || since_ < kTuning.trial_gap || (record.trials_left <= 0 && !is_rare))
    return std::nullopt;
  const auto plan = most_promising(record);
  if (!plan) return std::nullopt;
  plan_ = *plan, phase_ = record.border.phase;
  proposals_left_ = kTuning.burst - 1, notes_left_ = kTuning.burst_notes, num_played_ = 0;
  return plan;
}

bool Trials::is_trial(const StepReport& step) const {
  return notes_left_ > 0 && step.plan == static_cast<uint32_t>(id_of(plan_)) &&
         step.phase == static_cast<uint8_t>(phase_);
}

void Trials::note(PlanRecord& record, const StepReport& step) {
  last_phase_ = record.border.phase;
  ++since_;
  if (notes_left_ == 0) return;
  if (is_trial(step)) {
    ++num_played_, ++record.num_trial_steps, --record.trials_left;
    since_ = 0;
  }
  if (--notes_left_ == 0 || num_played_ == kTuning.burst) notes_left_ = proposals_left_ = 0;
}

}  // namespace hocket
