// Checks what a caller of the C interface asks for, and reads chats and grammars.   Thread: any.
#pragma once

#include <string_view>

#include "base/result.h"
#include "core/sampling_params.h"
#include "text/answers/thoughts_ahead.h"
#include "text/chat_template.h"

namespace hocket {

// Errors: invalid_request, which names the field.
Result<void> check_sampling(const SamplingParams& sampling, int vocab_size);
// `kind`: HOCKET_JSON_SCHEMA and the like; `text`: what that kind holds. Errors: invalid_request.
// A mistake that only the compiler of grammars finds ends the request later, with the same code.
Result<std::shared_ptr<const GrammarSpec>> read_grammar(int kind, std::string_view text);
// `thoughts`: HOCKET_NO_THOUGHTS and the like. Errors: invalid_request.
Result<ThoughtsAhead> read_thoughts(int thoughts);
// `messages_json`: an array of objects. `extra_json`: empty, or an object with any of tools,
// chat_template_kwargs, add_generation_prompt, continue_final_message; others are refused. Sizes
// and depths are bounded as in the server's requests. Errors: invalid_request.
Result<ChatInput> read_chat(std::string_view messages_json, std::string_view extra_json);

}  // namespace hocket
