#include "policy/speculation/gate_buckets.h"

#include <algorithm>
#include <bit>
#include <tuple>
#include <utility>

namespace hocket {
namespace {

// Returns the smallest power of two, or 1.5 times one, that is not below n.
int answers_border(int n) {
  const auto power = static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(n, 1))));
  return power >= 4 && n <= power / 4 * 3 ? power / 4 * 3 : power;
}

int64_t keys_border(int64_t keys_an_answer) {
  return static_cast<int64_t>(
      std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(keys_an_answer, kGate.few_keys))));
}

}  // namespace

// A step that takes longer must bring as many tokens more as steps usually bring in that time.
double GateBucket::tokens_per_plain_step() const {
  return std::max(1.0, tokens_mean / time_ratio_mean);
}

// The first steps of a size may be slow for other reasons, such as cold caches, and the fit of
// times would take very long to forget them. So it begins after them, and a step that is much
// slower than those before it counts less.
double GateBucket::note_plain(double us) {
  last_plain = num_steps;
  plain_steps.add(static_cast<float>(us));
  if (plain_steps.count() < kGate.few) return 0;
  return std::min(us, kGate.max_off * plain_steps.median());
}

GateBuckets::Found GateBuckets::find(int num_answers, int64_t total_keys, double growth) {
  const int border = answers_border(num_answers);
  const int64_t border_keys = keys_border(total_keys / std::max(num_answers, 1));
  auto found = std::ranges::find_if(buckets_, [&](const GateBucket& bucket) {
    return bucket.num_answers == border && bucket.answer_keys == border_keys;
  });
  const bool is_new = found == buckets_.end();
  if (is_new) {
    found = std::ranges::min_element(buckets_, {}, &GateBucket::last_used);
    *found = {.num_answers = border, .answer_keys = border_keys};
    for (GateBucket::WayState& way : found->ways) way.costs.begin(border, growth);
  }
  found->last_used = ++clock_;
  return {*found, is_new};
}

// A step of one size changes the prediction for all sizes, for each by another factor.
void GateBuckets::change_reference(const StepTimes& before, const StepTimes& now) {
  for (GateBucket& bucket : buckets_) {
    if (bucket.num_steps == 0) continue;
    const double old_us = to_us(before.predict(bucket.last_shape));
    const double new_us = to_us(now.predict(bucket.last_shape));
    if (old_us <= 0 || new_us <= 0) continue;
    for (GateBucket::WayState& way : bucket.ways) way.costs.scale_reference(new_us / old_us);
  }
}

std::vector<GateState::Bucket> GateBuckets::copies(bool drafts_ahead) const {
  std::vector<GateState::Bucket> all;
  for (const GateBucket& bucket : buckets_) {
    if (bucket.num_answers == 0 || bucket.num_steps == 0) continue;
    const GateBucket::WayState &now = bucket.way(DraftWay::now),
                               &ahead = bucket.way(DraftWay::ahead);
    const bool uses_ahead =
        drafts_ahead &&
        (ahead.usual.num_drafts > 0 || (now.usual.num_drafts == 0 && now.best.num_drafts == 0));
    const GateBucket::WayState& used = uses_ahead ? ahead : now;
    all.push_back({.num_answers = bucket.num_answers,
                   .answer_keys = bucket.answer_keys,
                   .num_steps = bucket.num_steps,
                   .num_draft_steps = bucket.num_draft_steps,
                   .num_trial_steps = bucket.num_trial_steps,
                   .usual = used.usual,
                   .best = used.best,
                   .plain_us = bucket.plain_us});
  }
  std::ranges::sort(all, {}, [](const GateState::Bucket& each) {
    return std::tuple(each.num_answers, each.answer_keys);
  });
  return all;
}

}  // namespace hocket
