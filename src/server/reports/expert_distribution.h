// Records which experts are chosen, so that operators can place experts:
// /start_expert_distribution_record, /stop_ and /dump_. As SGLang's, except that /dump_ returns the
// record and writes no file. Only rows that this process computed are counted.   Thread: any.
#pragma once

#include <optional>
#include <string_view>

#include "engine/stats/expert_move_stats.h"
#include "engine/stats/expert_stats.h"
#include "server/http/json_body.h"

namespace hocket {

// Parses a body of /start_expert_distribution_record. Errors: as json_body.h.
Result<ExpertStats::Start> parse_expert_start(const Json& json);

// `stats` is null for a model without experts; then all four return invalid_request. Other errors:
// those of ExpertStats; for a body, as json_body.h.
Result<Json> start_expert_record(ExpertStats* stats, std::string_view body);
Result<Json> stop_expert_record(ExpertStats* stats);
Result<Json> dump_expert_record(ExpertStats* stats);
// Returns the sums so far without ending the record: {"recording", "record": null or as dumped}.
Result<Json> look_at_expert_record(const ExpertStats* stats,
                                   const std::optional<ExpertMoveStats>& moves);

}  // namespace hocket
