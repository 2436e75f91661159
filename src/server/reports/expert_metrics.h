// Adds the metrics of experts, and of their moves, to /metrics.
#pragma once

#include "engine/stats/engine_stats.h"
#include "server/reports/metric_snapshot.h"

namespace hocket {

// Adds sums per rank. Each expert would need thousands of series; /dump_expert_distribution_record
// has them.
void add_experts(MetricSnapshot& out, const ExpertBalance& experts);
// Adds the time that moving experts saved and cost; zeros without --enable-eplb.
void add_moves(MetricSnapshot& out, const ExpertMoveStats& s);

}  // namespace hocket
