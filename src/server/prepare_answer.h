// Makes a parsed request into one that the generator can take.   Thread: any.
#pragma once

#include <memory>

#include "server/protocol/answer.h"

namespace hocket {

// The Answer to a parsed request: prompts as tokens, limits settled, names given. What it and the
// generator's copies hold is counted in `memory` (null: not at all) until the Answer dies.
// Errors: as prompt_ids, fit_to_context and RequestMemory::take.
Result<Answer> prepare_answer(GenerationRequest request, const ServedModel& model,
                              std::shared_ptr<RequestMemory> memory = nullptr);

}  // namespace hocket
