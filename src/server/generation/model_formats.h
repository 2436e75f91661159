// Settles once, at the start, how the served model writes tool calls and reasoning.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "core/server_settings.h"
#include "server/http/json_body.h"
#include "text/answers/chat_template_caps.h"
#include "text/answers/tool_format.h"
#include "text/tokens/chat_template.h"

namespace hocket {

// The field of chat answers that holds the reasoning.
enum class ReasoningField : uint8_t { reasoning_content, reasoning, both };

// The thinking budget that stands for a reasoning_effort if the template does not handle efforts.
// tokens: -1 means no limit.
struct EffortBudget {
  std::string_view effort;
  int tokens = -1;
};
inline constexpr std::array kEffortBudgets = {
    EffortBudget{"none", 0},      EffortBudget{"minimal", 512}, EffortBudget{"low", 1024},
    EffortBudget{"medium", 8192}, EffortBudget{"high", 24576},  EffortBudget{"xhigh", -1},
    EffortBudget{"max", -1},      EffortBudget{"default", -1}};
std::vector<std::string_view> effort_names();

struct ModelFormats {
  ToolFormat tools = ToolFormat::none;
  ReasoningFormat reasoning;
  ReasoningField reasoning_field = ReasoningField::reasoning_content;
  ChatTemplateCaps caps;
  std::vector<TokenId> kept;  // control tokens whose text the parser needs
  bool tools_by_flag = false, reasoning_by_flag = false;

  bool effort_is_budget() const { return reasoning && !caps.uses_effort; }
};

// Chooses by flags, then by the template. `chat_template` and `tokenizer` may be null.
// Errors: bad_value.
Result<ModelFormats> choose_model_formats(const AnswerSettings& settings,
                                          const ChatTemplate* chat_template,
                                          const Tokenizer* tokenizer);
// Returns the formats as /get_server_info shows them.
Json model_formats_json(const ModelFormats& formats);

}  // namespace hocket
