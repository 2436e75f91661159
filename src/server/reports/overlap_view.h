// Reports what overlap hid and why: /overlap, and its metrics.
// Thread: any.
#pragma once

#include "engine/stats/overlap_stats.h"
#include "server/http/json_body.h"
#include "server/reports/metric_snapshot.h"

namespace hocket {

// Returns the JSON that docs/api.md describes in "What overlap hides".
Json overlap_json(const OverlapView& view);
// Adds the metrics of one rank; every rank has the same families.
void add_overlap(MetricSnapshot& out, const OverlapStats& overlap);

}  // namespace hocket
