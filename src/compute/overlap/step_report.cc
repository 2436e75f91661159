#include "compute/overlap/step_report.h"

#include <algorithm>
#include <cmath>

namespace hocket {
namespace {

// A peer's report is not trusted: only values that a step can have are accepted.
bool is_time(float us) {
  return std::isfinite(us) && us >= 0;
}

bool is_sound(const StepReport& report) {
  return report.is_valid != 0 && report.phase < kNumPhases &&
         std::ranges::all_of(report.compute_us, is_time) &&
         std::ranges::all_of(
             std::array{report.other_us, report.exposed_us, report.waiting_us, report.step_us,
                        report.dispatch_busy_us, report.combine_busy_us, report.dispatch_kb,
                        report.combine_kb, report.latency_us},
             is_time);
}

}  // namespace

StepReport slowest_of(std::span<const StepReport> reports) {
  StepReport all;
  const auto raise = [](auto& most, auto other) { most = std::max(most, other); };
  for (const StepReport& report : reports) {
    if (!is_sound(report)) continue;
    if (all.is_valid == 0) {
      all = report;
      all.is_valid = 1;
      continue;
    }
    all.is_exact = std::min(all.is_exact, report.is_exact);
    raise(all.rows, report.rows);
    raise(all.kv_tokens, report.kv_tokens);
    for (size_t i = 0; i < kNumStages; ++i) raise(all.compute_us[i], report.compute_us[i]);
    for (float StepReport::* field :
         {&StepReport::other_us, &StepReport::exposed_us, &StepReport::waiting_us,
          &StepReport::step_us, &StepReport::dispatch_busy_us, &StepReport::combine_busy_us,
          &StepReport::dispatch_kb, &StepReport::combine_kb})
      raise(all.*field, report.*field);
    // A latency of 0 means that there was no transfer.
    if (report.latency_us > 0 && (all.latency_us == 0 || report.latency_us < all.latency_us))
      all.latency_us = report.latency_us;
  }
  return all;
}

}  // namespace hocket
