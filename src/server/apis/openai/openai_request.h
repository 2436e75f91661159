// Parses bodies of /v1/chat/completions and /v1/completions into checked requests. docs/api.md
// lists the fields. Every error is 400 and names the field.   Thread: any.   Source: OpenAI's API
// reference, with the additions of SGLang and vLLM.
#pragma once

#include "server/generation/generation_request.h"
#include "server/http/json_body.h"

namespace hocket {

Result<GenerationRequest> parse_chat(const Json& body, const ServedModel& model);
Result<GenerationRequest> parse_completions(const Json& body, const ServedModel& model);

// Reads `messages` as the template takes them: text parts are joined, "developer" becomes "system".
void read_messages(Fields& fields, Json& out);
// Reads the fields that shape the prompt of a conversation: messages, chat_template_kwargs, ...
void read_conversation(Fields& fields, ChatInput& chat);

}  // namespace hocket
