// Decides the structure of an answer once its prompt is known: reasoning before structured output,
// tool calls that the request asks for, the thinking budget.   Thread: any.
#pragma once

#include "server/generation/generation_request.h"

namespace hocket {

// Sets prompt.reasoning_open, prompt.sampling.grammar and prompt.sampling.reasoning_limit. `ids`
// are those of the prompt. Errors: invalid_request if the model's family cannot write such calls.
Result<void> settle_structure(Prompt& prompt, std::span<const TokenId> ids,
                              const AnswerReading& reading, const ServedModel& model);

}  // namespace hocket
