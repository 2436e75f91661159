// hocket plan --disaggregation-hosts: says when prefill apart from decode pays on that many hosts.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "engine/forecast/split_forecast.h"

namespace hocket {

inline constexpr int kMaxSplitHosts = 64;

// Checks --disaggregation-hosts, 0 if it is absent. Errors: bad_value.
Result<void> check_split_hosts(int num_hosts, const ParallelSettings& parallel);

// Returns points for prompts of 512 tokens to the whole context, and intervals of 25 to 400 ms. The
// link is that of --ep-link-gbit, else 10 Gbit/s.
// Precondition: 2 to kMaxSplitHosts hosts, a model that fits.
std::vector<SplitPoint> plan_split(const ForecastInput& input, const Forecast& forecast,
                                   int num_hosts);
void print_split(const std::vector<SplitPoint>& points, int num_hosts);
nlohmann::ordered_json split_json(const std::vector<SplitPoint>& points);

}  // namespace hocket
