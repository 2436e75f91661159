#include "compute/overlap/explain.h"

#include <algorithm>
#include <cmath>

namespace hocket {
namespace {

// Returns how much less time than `none` it is, in whole percent.
long gain(double us, double none_us) {
  return none_us > 0 ? std::lround(100 * (none_us - us) / none_us) : 0;
}

// Returns "+12 %", "-4 %", "0 %".
std::string with_sign(long gain) {
  return fmt::format("{}{} %", gain > 0 ? "+" : "", gain);
}

// Returns "decode, 64 rows", "prefill, 2048 rows of 4096 keys".
std::string bucket_name(const Bucket& bucket) {
  const int64_t keys = bucket.kv_tokens / std::max(bucket.rows, 1);
  return fmt::format("{}, {} row{}{}", phase_name(bucket.phase), bucket.rows,
                     bucket.rows == 1 ? "" : "s",
                     keys > kTuning.few_keys ? fmt::format(" of {} keys", keys) : "");
}

}  // namespace

OverlapDecision decision_of(const PlanRecord& record, const OrderTable& orders) {
  const Correction correction(record);
  OverlapDecision out{.bucket = record.border,
                      .plan = record.played.plan,
                      .name = describe(record.played.plan, orders),
                      .text = decision_text(record, orders),
                      .predicted_us = correction.of(record.played).us,
                      .measured_us = record.measured.median(),
                      .none_us = record.min_us()[0],
                      .lower_bound_us = record.found.lower_bound_us,
                      .num_steps = record.num_steps,
                      .num_trial_steps = record.num_trial_steps,
                      .num_changes = record.num_changes};
  for (const Candidate& candidate : record.found.candidates) {
    const Expected expected = correction.of(candidate);
    out.top_candidates.push_back({candidate.plan, describe(candidate.plan, orders),
                                  candidate.step_us, expected.us, expected.num_measured});
  }
  std::ranges::sort(out.top_candidates, {}, &TopCandidate::expected_us);
  out.top_candidates.resize(std::min(out.top_candidates.size(), kTuning.max_top_candidates));
  return out;
}

std::string decision_text(const PlanRecord& record, const OrderTable& orders) {
  const std::string is =
      fmt::format("{}: {}", bucket_name(record.border), describe(record.played.plan, orders));
  if (record.found.candidates.empty()) return is + " (nothing measured yet)";
  const auto [none_us, single_us, two_us] = record.min_us();
  if (record.played.kind != PlanKind::none) {
    const double us = Correction(record).of(record.played).us;
    return fmt::format("{} (predicted {:.3g} ms, none {:.3g} ms: {} % {})", is, us / 1e3,
                       none_us / 1e3, std::abs(gain(us, none_us)), us <= none_us ? "less" : "more");
  }
  if (two_us <= 0) return is + " (too few rows for two halves)";
  const long of_two = gain(two_us, none_us);
  const bool by_measuring = of_two <= 0 && record.found.best_of.back().step_us < none_us;
  return fmt::format("{} (two halves predicted {}: {})", is, with_sign(of_two),
                     of_two > 0     ? "too little to change for"
                     : by_measuring ? "they took longer than they should"
                                    : why_single_batch(record.found.reason));
}

std::string forced_text(const PlanRecord& record, const OverlapChoice& choice,
                        const OrderTable& orders) {
  const Correction correction(record);
  const auto best = std::ranges::min_element(
      record.found.candidates, {},
      [&](const Candidate& candidate) { return correction.of(candidate).us; });
  const bool is_two =
      choice.mode == OverlapChoice::Mode::two_batch && best->kind != PlanKind::two_batch;
  return fmt::format("{} costs {:.0f} % at {}: {}", choice.flag, 100 * record.cost(),
                     bucket_name(record.border),
                     is_two ? why_single_batch(record.found.reason)
                            : fmt::format("{} would be faster", describe(best->plan, orders)));
}

std::string why_single_batch(const SearchReason& reason) {
  const auto& [none, two, latency_us, experts_us, attn_us] = reason;
  if (none.exposed_us < kTuning.little_exchange * none.step_us)
    return fmt::format("nothing to hide, the exchange is {:.1f} % of the step",
                       100 * none.exposed_us / none.step_us);
  const double costs = two.compute_us - none.compute_us, hides = none.exposed_us - two.exposed_us;
  const double much = kTuning.main_cause * none.exposed_us;
  if (costs > 0 && (costs >= much || hides >= much))
    return fmt::format("splitting costs {:.0f} %, hides {:.0f} %", 100 * costs / none.step_us,
                       100 * std::max(hides, 0.0) / none.step_us);
  if (latency_us >= much)
    return fmt::format("{:.0f} % of the exchange is latency", 100 * latency_us / none.exposed_us);
  const bool is_dispatch = two.dispatch_exposed_us >= two.combine_exposed_us;
  return fmt::format("{} too small to cover {}", experts_us < attn_us ? "experts" : "attention",
                     is_dispatch ? "dispatch" : "combine");
}

std::string explain(const SearchResult& answer) {
  const auto& [none, single, two] = answer.best_of;
  const PlanKind best = answer.best().kind;
  const Prediction &without = answer.reason.none, &with = answer.reason.two;
  if (best == PlanKind::two_batch)
    return fmt::format("the exchange is {:.0f} % of a step without overlap, {:.0f} % of it hidden",
                       100 * without.exposed_us / without.step_us,
                       100 * (without.exposed_us - with.exposed_us) / without.exposed_us);
  const std::string one =
      best == PlanKind::single_batch
          ? fmt::format("one half predicted {}, ", with_sign(gain(single.step_us, none.step_us)))
          : "";
  if (two.step_us == 0) return one + "too few rows for two halves";
  return fmt::format("{}two halves predicted {}: {}", one,
                     with_sign(gain(two.step_us, none.step_us)), why_single_batch(answer.reason));
}

}  // namespace hocket
