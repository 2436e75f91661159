// A request that is ready for the engine: its prompts are tokenized and fit the context.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/generation/generation_request.h"
#include "server/usage/request_memory.h"

namespace hocket {

// From its caller it gets `received` and the parts of `request` that the connection knows; after
// that it never changes.
struct PreparedRequest {
  std::string id;  // "chatcmpl-..."
  int64_t created = 0;
  uint64_t call_seed = 0;  // ids of calls are computed from it
  ServedModel model;
  GenerationRequest request;
  std::vector<std::vector<TokenId>> prompts;  // token ids, by index of request.prompts
  HeldBytes held;                             // bytes of the prompts and of the engine's copies
  std::vector<std::string> echoes;            // text of prompts that came as ids, if `echo` is set
  TimePoint received{};
};

// Tokenizes and fits a parsed request. The bytes that it and the engine's copies hold are counted
// in `memory` (null: not counted) until the result is destroyed.   Thread: any. Errors: those of
// prompt_ids, fit_to_context and RequestMemory::take.
Result<PreparedRequest> prepare_request(GenerationRequest request, const ServedModel& model,
                                        std::shared_ptr<RequestMemory> memory = nullptr);

// Returns the prompt as text, for `echo`.
std::string prompt_text(const PreparedRequest& prepared, int prompt);

}  // namespace hocket
