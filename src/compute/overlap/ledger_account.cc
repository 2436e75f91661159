// The sums and the report of an account.
#include <algorithm>
#include <limits>

#include "compute/overlap/ledger.h"

namespace hocket {
namespace {

float us(Duration d) {
  return static_cast<float>(to_us(d));
}

Duration sum_of(const std::array<Duration, kNumBooked>& compute) {
  Duration sum{};
  for (const Duration d : compute) sum += d;
  return sum;
}

}  // namespace

Duration StepAccount::computed() const {
  return sum_of(compute);
}

double StepAccount::hidden_share() const {
  const Duration all = transferred();
  return all.count() > 0 ? to_seconds(hidden) / to_seconds(all) : 0;
}

double StepAccount::half_imbalance() const {
  const Duration both = half_compute[0] + half_compute[1];
  if (half_compute[1].count() == 0 || both.count() == 0) return 1;
  return 2 * to_seconds(std::max(half_compute[0], half_compute[1])) / to_seconds(both);
}

StepReport StepAccount::report() const {
  StepReport out;
  out.plan = static_cast<uint32_t>(id_of(plan));
  out.rows = static_cast<uint32_t>(bucket.rows);
  out.kv_tokens = static_cast<uint32_t>(
      std::clamp<int64_t>(bucket.kv_tokens, 0, std::numeric_limits<uint32_t>::max()));
  out.phase = static_cast<uint8_t>(bucket.phase);
  out.is_valid = has_pass;
  out.is_exact = exact_arrival;
  std::ranges::transform(stages, out.compute_us.begin(), us);
  out.other_us = us(other);
  out.exposed_us = us(exposed);
  out.waiting_us = us(waiting);
  out.step_us = us(took);
  out.dispatch_busy_us = us(busy[0]);
  out.combine_busy_us = us(busy[1]);
  out.dispatch_kb = static_cast<float>(bytes[0]) / 1000;
  out.combine_kb = static_cast<float>(bytes[1]) / 1000;
  out.latency_us = us(latency);
  return out;
}

}  // namespace hocket
