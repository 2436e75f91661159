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
  if (pace_.proposes() && record.border.phase == phase_) {
    pace_.propose();
    return plan_;
  }
  if (last_phase_ != record.border.phase || record.measured.count() < kTuning.few ||
      !pace_.may_begin(record.trials_left > 0))
    return std::nullopt;
  const auto plan = most_promising(record);
  if (!plan) return std::nullopt;
  plan_ = *plan, phase_ = record.border.phase;
  pace_.begin();
  return plan;
}

bool Trials::is_trial(const StepReport& step) const {
  return pace_.under_way() && step.plan == static_cast<uint32_t>(id_of(plan_)) &&
         step.phase == static_cast<uint8_t>(phase_);
}

void Trials::note(PlanRecord& record, const StepReport& step) {
  last_phase_ = record.border.phase;
  const bool is_one = is_trial(step);
  if (is_one) ++record.num_trial_steps, --record.trials_left;
  pace_.note(is_one);
}

}  // namespace hocket
