#include "policy/scheduler/schedule_policy.h"

#include <algorithm>
#include <string>

namespace hocket {
namespace {

constexpr std::string_view kNames[] = {
    "fcfs", "lpm",    "dfs-weight",  "hrrn", "shortest-prefill-first",
    "lof",  "random", "routing-key", "fair"};
constexpr std::string_view kPrefillNames[] = {"prefill-first", "mixed", "latency"};

}  // namespace

std::string_view prefill_policy_name(PrefillPolicy policy) {
  return kPrefillNames[static_cast<size_t>(policy)];
}

Result<PrefillPolicy> parse_prefill_policy(std::string_view name) {
  const auto found = std::ranges::find(kPrefillNames, name);
  if (found != std::end(kPrefillNames))
    return static_cast<PrefillPolicy>(found - std::begin(kPrefillNames));
  return fail(error(ErrorCode::bad_value, "prefill policy '{}' is unknown", name)
                  .with_fix("one of auto, prefill-first, mixed, latency")
                  .with_param("prefill-policy"));
}

std::span<const std::string_view> schedule_policy_names() {
  return kNames;
}

std::string_view schedule_policy_name(SchedulePolicy policy) {
  return kNames[static_cast<size_t>(policy)];
}

Result<SchedulePolicy> parse_schedule_policy(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found != std::end(kNames)) return static_cast<SchedulePolicy>(found - std::begin(kNames));
  std::string all;
  for (const std::string_view one : kNames) all += (all.empty() ? "" : ", ") + std::string(one);
  return fail(error(ErrorCode::bad_value, "schedule policy '{}' is unknown", name)
                  .with_fix("one of " + all)
                  .with_param("schedule-policy"));
}

}  // namespace hocket
