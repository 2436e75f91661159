// Finds out, before an answer begins, if it begins with thoughts.   Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/answers/answer_format.h"
#include "text/tokens/chat_template.h"
#include "text/tokens/tokenizer.h"

namespace hocket {

enum class ThoughtsAhead : uint8_t {
  none,      // the prompt closed them, or the model writes none
  possible,  // they come if the answer begins with their open mark
  open,      // the prompt ends within them
};

// `ids`: the tokens of the chat as the template wrote it.
ThoughtsAhead thoughts_ahead(const ChatInput& chat, std::span<const TokenId> ids,
                             const ReasoningFormat& format, const Tokenizer& tokenizer);
// Returns the thoughts that an answer's grammar allows. If they are only possible, it allows them
// only if the chat asks for them or the template always does: allowed thoughts invite the model to
// think.
ThoughtsAhead thoughts_before_structure(ThoughtsAhead thoughts, const ChatInput& chat,
                                        const ChatTemplate& chat_template);
// Returns the marks that are control tokens, ascending: an answer's text must keep them.
std::vector<TokenId> control_tokens_of(std::span<const std::string_view> marks,
                                       const Tokenizer& tokenizer);

}  // namespace hocket
