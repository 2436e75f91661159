// Adds the metrics of structured output to /metrics.
#pragma once

#include "engine/watch/grammar_stats.h"
#include "server/views/metric_snapshot.h"

namespace hocket {

void add_grammars(MetricSnapshot& out, const GrammarStats& grammars);

}  // namespace hocket
