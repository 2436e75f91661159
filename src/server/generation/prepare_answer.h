// Turns a parsed request into one that the engine can take.   Thread: any.
#pragma once

#include <memory>

#include "server/generation/answer.h"

namespace hocket {

// Returns the Answer to a parsed request: its prompts are tokenized, its limits fit the context,
// and it has an id. The bytes that it and the engine's copies hold are counted in `memory`
// (null: not counted) until the Answer is destroyed. Errors: those of prompt_ids, fit_to_context
// and RequestMemory::take.
Result<Answer> prepare_answer(GenerationRequest request, const ServedModel& model,
                              std::shared_ptr<RequestMemory> memory = nullptr);

}  // namespace hocket
