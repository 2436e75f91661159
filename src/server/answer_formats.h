// How the served model writes calls of tools and thoughts: settled once, at the start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "core/server_settings.h"
#include "server/json_body.h"
#include "text/answers/answer_format.h"
#include "text/chat_template.h"
#include "text/template_traits.h"

namespace hocket {

// What clients of the chat API call the thoughts.
enum class ReasoningField : uint8_t { reasoning_content, reasoning, both };

struct AnswerFormats {
  ToolFormat tools = ToolFormat::none;
  ReasoningFormat reasoning;
  ReasoningField reasoning_field = ReasoningField::reasoning_content;
  TemplateTraits traits;
  std::vector<TokenId> kept;               // control tokens that are marks: their text is needed
  std::optional<TokenId> reasoning_close;  // where the mark is one token
  bool tools_by_flag = false, reasoning_by_flag = false;
};

// `chat_template` and `tokenizer` may be null. Errors: bad_value.
Result<AnswerFormats> choose_answer_formats(const AnswerSettings& settings,
                                            const ChatTemplate* chat_template,
                                            const Tokenizer* tokenizer);
// For /get_server_info.
Json answer_formats_json(const AnswerFormats& formats);

}  // namespace hocket
