// Whether an answer begins with thoughts, found out before it is begun.   Thread: any.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/answers/answer_format.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace hocket {

enum class ThoughtsAhead : uint8_t {
  none,      // the prompt closed them, or the model has none
  possible,  // where it writes the mark that opens them
  open,      // the prompt ends within them
};

// `ids`: of the chat as the template wrote it.
ThoughtsAhead thoughts_ahead(const ChatInput& chat, std::span<const TokenId> ids,
                             const ReasoningFormat& format, const Tokenizer& tokenizer);
// Those that a grammar of the answer leaves room for: where they are only possible, the model must
// be expected to think. Room that nobody wants would ask for thoughts.
ThoughtsAhead thoughts_before_structure(ThoughtsAhead thoughts, const ChatInput& chat,
                                        const ChatTemplate& chat_template);
// The marks that are control tokens, ascending: an answer's text must keep them.
std::vector<TokenId> control_tokens_of(std::span<const std::string_view> marks,
                                       const Tokenizer& tokenizer);

}  // namespace hocket
