// Parses bodies of Anthropic's /v1/messages and /v1/messages/count_tokens into requests.
// docs/api.md lists the fields. Every error is 400 and names the field.   Thread: any.
// Source: Anthropic's API reference, version 2023-06-01.
#pragma once

#include "server/generation/generation_request.h"
#include "server/http/json_body.h"

namespace hocket {

Result<GenerationRequest> parse_messages(const Json& body, const ServedModel& model);
// Reads only the fields that shape the prompt; the others are checked and then ignored.
Result<GenerationRequest> parse_count_tokens(const Json& body, const ServedModel& model);

}  // namespace hocket
