// What overlap did and why: /overlap, and its metrics.
// Thread: any.
#pragma once

#include "engine/watch/overlap_stats.h"
#include "server/protocol/json_body.h"
#include "server/views/metric_snapshot.h"

namespace hocket {

// docs/api.md has the form, "What overlap hides".
Json overlap_json(const OverlapView& view);
// Of one rank; the same families for each.
void add_overlap(MetricSnapshot& out, const OverlapStats& overlap);

}  // namespace hocket
