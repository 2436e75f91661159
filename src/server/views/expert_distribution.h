// Which experts are chosen, for those who place experts: /start_expert_distribution_record,
// /stop_ and /dump_, as SGLang's, but that the record is the answer and no file is written.
// Of the rows that this process computed.   Thread: any.
#pragma once

#include <string_view>

#include "engine/watch/expert_stats.h"
#include "server/protocol/json_body.h"

namespace hocket {

// What a body of /start_expert_distribution_record asks for. Errors: as json_body.h.
Result<ExpertStats::Start> parse_expert_start(const Json& json);

// `stats`: null for a model without experts, which is invalid_request for all.
// Other errors: those of ExpertStats; of a body, as json_body.h.
Result<Json> start_expert_record(ExpertStats* stats, std::string_view body);
Result<Json> stop_expert_record(ExpertStats* stats);
Result<Json> dump_expert_record(ExpertStats* stats);
// The sums so far, of a record that goes on: {"recording", "record": null or as dumped}.
Result<Json> look_at_expert_record(const ExpertStats* stats);

}  // namespace hocket
