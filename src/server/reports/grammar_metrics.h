// Adds the metrics of structured output to /metrics.
#pragma once

#include "engine/stats/grammar_stats.h"
#include "server/reports/metric_snapshot.h"

namespace hocket {

void add_grammars(MetricSnapshot& out, const GrammarStats& grammars);

}  // namespace hocket
