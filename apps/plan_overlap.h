// hocket plan --overlap: finds the best plan of overlap, and its gain, for several sizes of steps
// and speeds of links.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "core/server_settings.h"
#include "engine/forecast/forecast.h"
#include "engine/forecast/overlap_forecast.h"

namespace hocket {

// Returns the best plan for each link and size: decode steps of 1 to 512 rows, prefill steps of 512
// to 8,192. The link is that of --ep-link-gbit if given; else there are six of 0.2 to 100 Gbit/s.
// A core moves the bytes at the price of input.link.
std::vector<OverlapPoint> plan_overlap(const ForecastInput& input, const Forecast& forecast);
void print_overlap(const std::vector<OverlapPoint>& points, int num_ranks);
nlohmann::ordered_json overlap_json(const std::vector<OverlapPoint>& points);

}  // namespace hocket
