// Checks the values of callers of the C interface, and reads chats and grammars.   Thread: any.
#pragma once

#include <string_view>

#include "base/result.h"
#include "core/sampling_params.h"
#include "text/answers/reasoning_start.h"
#include "text/tokens/chat_template.h"

namespace hocket {

// Errors: invalid_request, which names the field.
Result<void> check_sampling(const SamplingParams& sampling, int vocab_size);
// `kind`: HOCKET_JSON_SCHEMA and so on; `text` in that form. Errors: invalid_request. A mistake
// that only the grammar compiler finds ends the request later, with the same code.
Result<std::shared_ptr<const GrammarSpec>> read_grammar(int kind, std::string_view text);
// `reasoning`: that field of a request, HOCKET_NO_REASONING and so on. Errors: invalid_request.
Result<ReasoningStart> read_reasoning_start(int reasoning);
// `messages_json`: an array of objects. `extra_json`: empty, or an object with any of tools,
// chat_template_kwargs, add_generation_prompt, continue_final_message; other keys are refused.
// Sizes and depths are limited as in the server's requests. Errors: invalid_request.
Result<ChatInput> read_chat(std::string_view messages_json, std::string_view extra_json);

}  // namespace hocket
