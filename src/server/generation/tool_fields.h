// Reads a conversation's fields about tools and reasoning. Errors: 400, with the field.
// Thread: any.
#pragma once

#include "server/generation/generation_request.h"
#include "server/http/json_body.h"

namespace hocket {

// Reads tools, tool_choice, parallel_tool_calls: what the template shows, and how calls are read.
void read_tools(Fields& fields, const ServedModel& model, AnswerReading& reading, ChatInput& chat);
// Reads separate_reasoning, stream_reasoning, include_reasoning, reasoning_effort, thinking_budget.
void read_reasoning(Fields& fields, const ServedModel& model, AnswerReading& reading,
                    ChatInput& chat);

}  // namespace hocket
