#include "compute/overlap/plan_record.h"

#include <utility>

namespace hocket {

void MeasuredRatio::add(double ratio) {
  std::rotate(last_.begin(), last_.begin() + 1, last_.end());
  last_.back() = static_cast<float>(ratio);
  if (count() > 0) {
    const double off = ratio / median(), far = kTuning.far_ratio;
    const double weight = std::max(kTuning.newest_share, 1.0 / count());
    if (off < far && off * far > 1)
      spread_ += weight * (kTuning.spread_per_mean * std::abs(off - 1) - spread_);
    if (const int since = watch_.add(off); since > 0) {
      median_.clear();
      for (int i = since; i > 1; --i) median_.add(*(last_.end() - i));
    }
  }
  median_.add(last_.back());
}

void MeasuredRatio::weaken(int max_count) {
  const auto median = static_cast<float>(median_.median());
  const int kept = std::min(count(), max_count);
  median_.clear();
  for (int i = 0; i < kept; ++i) median_.add(median);
}

Correction::Correction(const PlanRecord& record) : record_(record) {
  const KindRatios& near = (*record.of_phases_)[index_of(record.border.phase)];
  const double as_played = record.of_kinds_[index_of(record.played.kind)].value(1);
  double off = 0;
  for (size_t i = 0; i < kNumPlanKinds; ++i) {
    const MeasuredRatio& here = record.of_kinds_[i];
    of_kind_[i] =
        here.value(near[i].count() >= kTuning.min_measured ? near[i].value(1) : as_played);
    if (here.count() > 0) off = std::max(off, std::abs(here.median() - 1));
    // The machine causes the spread and not the kind, so the largest counts.
    noise_ = std::max(noise_, near[i].spread());
  }
  uncertainty_ = std::min(kTuning.errors_in_doubt * std::max(off, noise_), kTuning.max_doubt);
}

Expected Correction::of(const Candidate& candidate) const {
  const size_t kind = index_of(candidate.kind);
  for (const PlanRecord::PlanRatio& own : record_.of_plans_)
    if (own.plan.equals_but_for_share(candidate.plan) && own.ratio.count() > 0)
      return {candidate.step_us * own.ratio.value(of_kind_[kind]), own.ratio.error(noise_),
              own.ratio.count()};
  return {candidate.step_us * of_kind_[kind], record_.of_kinds_[kind].error(noise_)};
}

PlanRecord::PlanRecord(size_t max_candidates, const std::array<KindRatios, kNumPhases>* of_phases)
    : of_phases_(of_phases) {
  found.candidates.reserve(max_candidates);
}

void PlanRecord::begin(const Bucket& size, const Candidate& first) {
  PlanRecord fresh(0, of_phases_);
  std::swap(fresh.found.candidates, found.candidates);  // keeps its memory
  *this = std::move(fresh);
  found.candidates.clear();
  border = border_of(size);
  played = first;
  rows_ = size.rows, keys_ = static_cast<double>(size.kv_tokens);
}

Bucket PlanRecord::size() const {
  return {border.phase, std::max(static_cast<int>(std::lround(rows_)), 1), std::llround(keys_)};
}

void PlanRecord::note_size(const StepReport& step) {
  const double weight = std::max(kTuning.newest_share, 1.0 / static_cast<double>(++num_steps));
  rows_ += weight * (step.rows - rows_);
  keys_ += weight * (step.kv_tokens - keys_);
  if (num_steps % kTuning.ageing != 0) return;
  for (PlanRatio& own : of_plans_) own.ratio.age();
  for (MeasuredRatio& ratio : of_kinds_) ratio.age();
}

void PlanRecord::note_ratio(const Candidate& candidate, double ratio) {
  auto own = std::ranges::find_if(of_plans_, [&](const PlanRatio& one) {
    return one.plan.equals_but_for_share(candidate.plan);
  });
  if (own == of_plans_.end()) {
    own = std::ranges::min_element(of_plans_, {}, &PlanRatio::last_used);
    *own = {.plan = candidate.plan};
  }
  own->last_used = num_steps;
  own->ratio.add(ratio);
  of_kinds_[index_of(candidate.kind)].add(ratio);
}

void PlanRecord::weaken() {
  for (PlanRatio& own : of_plans_) own.ratio.weaken(kTuning.guess_weight);
  for (MeasuredRatio& ratio : of_kinds_) ratio.weaken(kTuning.guess_weight);
  measured.clear();
  evidence = num_asked_since_change = 0;
  num_remaining_trial_steps = kTuning.first_trial_steps;
}

void PlanRecord::adopt(const Candidate& candidate) {
  played = candidate;
  measured.clear();
  evidence = num_asked_since_change = 0;
  ++num_changes;
}

std::array<double, kNumPlanKinds> PlanRecord::min_us() const {
  std::array<double, kNumPlanKinds> least{};
  const Correction correction(*this);
  for (const Candidate& candidate : found.candidates) {
    double& of_kind = least[index_of(candidate.kind)];
    const double us = correction.of(candidate).us;
    if (of_kind == 0 || us < of_kind) of_kind = us;
  }
  return least;
}

double PlanRecord::cost() const {
  const double us = Correction(*this).of(played).us;
  double best_us = us;
  for (const double least : min_us())
    if (least > 0) best_us = std::min(best_us, least);
  return best_us > 0 ? us / best_us - 1 : 0;
}

}  // namespace hocket
