#include "compute/overlap/planner_record.h"

#include <algorithm>
#include <cmath>

namespace hocket {
namespace {

constexpr int kFewKeys = 1024;  // keys per row; steps with fewer share one bucket

double per_cent(double us, double none_us) {
  return none_us > 0 ? 100 * (us - none_us) / none_us : 0;
}

}  // namespace

// Classes of keys per row are powers of four, which is coarse: attention is one of ten operations.
Bucket border_of(const Bucket& bucket) {
  Bucket border = bucket;
  border.rows = static_cast<int>(size_of_class(size_class(std::max(bucket.rows, 1))));
  int64_t keys = kFewKeys;
  while (keys < bucket.kv_tokens / std::max(bucket.rows, 1)) keys *= 4;
  border.kv_tokens = border.rows * keys;
  return border;
}

const MeasuredRatio* PlannerRecord::ratio_of(const Plan& of) const {
  const auto it = std::ranges::find(played, of, &PlayedPlan::plan);
  return it != played.end() && it->ratio.count() > 0 ? &it->ratio : nullptr;
}

MeasuredRatio& PlannerRecord::ratio_for(const Plan& of) {
  auto it = std::ranges::find(played, of, &PlayedPlan::plan);
  if (it == played.end()) {
    it = std::ranges::min_element(played, {}, &PlayedPlan::last_used);
    *it = {.plan = of};
  }
  it->last_used = num_steps;
  return it->ratio;
}

std::string bucket_name(const Bucket& bucket) {
  const int64_t keys = bucket.kv_tokens / std::max(bucket.rows, 1);
  return fmt::format("{}, {} row{}{}", bucket.phase == Phase::prefill ? "prefill" : "decode",
                     bucket.rows, bucket.rows == 1 ? "" : "s",
                     keys > kFewKeys ? fmt::format(" of {} keys", keys) : "");
}

std::string decision_text(const PlannerRecord& record, const RecordTimes& times,
                          const OrderTable& orders) {
  const std::string is =
      fmt::format("{}: {}", bucket_name(record.border), describe(record.plan, orders));
  if (!record.is_searched) return is + " (nothing measured yet)";
  const double none_us = times.expected_us[0];
  const double two_us = times.expected_us[static_cast<size_t>(PlanKind::two_batch)];
  if (kind_of(record.plan, orders) != PlanKind::none) {
    const double change = per_cent(times.plan_us, none_us);
    return fmt::format("{} (predicted {:.3g} ms, none {:.3g} ms: {:.0f} % {})", is,
                       times.plan_us / 1e3, none_us / 1e3, std::abs(change),
                       change <= 0 ? "less" : "more");
  }
  if (two_us <= 0) return is + " (too few rows for two halves)";
  const long gain = std::lround(-per_cent(two_us, none_us));
  const bool by_measuring =
      record.found.best[static_cast<size_t>(PlanKind::two_batch)].step_us < none_us && gain <= 0;
  return fmt::format("{} (two halves predicted {}{} %: {})", is, gain > 0 ? "+" : "", gain,
                     gain > 0       ? "too little to change for"
                     : by_measuring ? "they took longer than they should"
                                    : why_not_two(record.found.reason));
}

std::string forced_text(const PlannerRecord& record, const RecordTimes& times,
                        const OrderTable& orders, const OverlapChoice& choice) {
  double best_us = times.plan_us;
  PlanKind best = kind_of(record.plan, orders);
  for (size_t kind = 0; kind < times.expected_us.size(); ++kind) {
    const double us = times.expected_us[kind];
    if (us > 0 && us < best_us) best_us = us, best = static_cast<PlanKind>(kind);
  }
  const std::string flag = choice.mode == OverlapChoice::Mode::two_batch
                               ? "--enable-two-batch-overlap"
                           : choice.mode == OverlapChoice::Mode::single_batch
                               ? "--enable-single-batch-overlap"
                               : "--overlap " + orders.at(choice.order).name;
  const bool lost_by_two =
      choice.mode == OverlapChoice::Mode::two_batch && best != PlanKind::two_batch;
  return fmt::format("{} costs {:.0f} % at {}: {}", flag, per_cent(times.plan_us, best_us),
                     bucket_name(record.border),
                     lost_by_two ? why_not_two(record.found.reason)
                                 : fmt::format("{} would be faster", plan_kind_name(best)));
}

}  // namespace hocket
