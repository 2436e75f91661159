// Finds out, before an answer begins, if it begins with reasoning.   Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/answers/tool_format.h"
#include "text/tokens/chat_template.h"
#include "text/tokens/tokenizer.h"

namespace hocket {

enum class ReasoningStart : uint8_t {
  none,      // the prompt closed the reasoning, or the model writes none
  possible,  // there is reasoning if the answer begins with its opening mark
  open,      // the prompt ends within it
};

// `ids`: the tokens of the chat as the template wrote it.
ReasoningStart reasoning_start(const ChatInput& chat, std::span<const TokenId> ids,
                               const ReasoningFormat& format, const Tokenizer& tokenizer);
// Returns the reasoning that an answer's grammar allows. If reasoning is only possible, the grammar
// allows it only if the chat asks for it or the template always does: a grammar that allows
// reasoning invites the model to reason.
ReasoningStart reasoning_before_structure(ReasoningStart start, const ChatInput& chat,
                                          const ChatTemplate& chat_template);
// Returns the marks that are control tokens, ascending: an answer's text must keep them.
std::vector<TokenId> control_tokens_of(std::span<const std::string_view> marks,
                                       const Tokenizer& tokenizer);

}  // namespace hocket
