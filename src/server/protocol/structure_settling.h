// What an answer must be like, settled once its prompt is known: thoughts before structure, calls
// of tools that the request asks for, how long the model may think.   Thread: any.
#pragma once

#include "server/protocol/generation_request.h"

namespace hocket {

// Sets prompt.reasoning_open, prompt.sampling.grammar and prompt.sampling.thoughts. `ids`: the
// prompt's. Errors: invalid_request, where the model's family cannot write such calls.
Result<void> settle_structure(Prompt& prompt, std::span<const TokenId> ids,
                              const AnswerReading& reading, const ServedModel& model);

}  // namespace hocket
