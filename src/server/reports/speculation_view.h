// Reports what drafts gained and why steps have as many as they have: /speculation, and its
// metrics. Thread: any.
#pragma once

#include "engine/speculation.h"
#include "policy/scheduler/scheduler_counters.h"
#include "server/http/json_body.h"
#include "server/reports/metric_snapshot.h"

namespace hocket {

// Returns the JSON that docs/api.md describes in "Speculation".
Json speculation_json(const SpeculationView& view);
// Adds the metrics of one rank; every rank has the same families.
void add_speculation(MetricSnapshot& out, const SchedulerCounters& counts);

}  // namespace hocket
