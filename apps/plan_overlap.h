// hocket plan --overlap: which plan of overlap would be best, and what it would gain, for sizes of
// steps and speeds of links.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "core/server_settings.h"
#include "engine/forecast/forecast.h"
#include "engine/forecast/overlap_forecast.h"

namespace hocket {

// Which sizes and links are asked about. One link: that of --ep-link-gbit; else those that are
// common, from 0.2 to 100 Gbit/s. on_hosts: ranks have hosts of their own, and a core moves their
// bytes.
std::vector<OverlapPoint> plan_overlap(const ForecastQuestion& question, const Forecast& forecast,
                                       bool on_hosts);
void print_overlap(const std::vector<OverlapPoint>& points, int num_ranks);
nlohmann::ordered_json overlap_json(const std::vector<OverlapPoint>& points);

}  // namespace hocket
