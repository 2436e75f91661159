#include <fmt/format.h>

#include "apps/flags.h"
#include "text/answers/tool_format.h"

namespace hocket {

FlagGroup answer_flags(ServerSettings& s) {
  AnswerSettings& a = s.answers;
  const auto names = [](auto list) { return fmt::format("{}", fmt::join(list, ", ")); };
  return {
      "Parsers",
      {{"tool-call-parser", &a.tool_call_parser,
        "how the model writes tool calls: auto (by its chat template), " +
            names(tool_format_names()),
        ""},
       {"reasoning-parser", &a.reasoning_parser,
        "how the model marks its reasoning: auto (by its chat template), " +
            names(reasoning_format_names()),
        ""},
       {"reasoning-field", &a.reasoning_field,
        "field of chat answers that has the reasoning: reasoning_content, reasoning, both", ""}}};
}

}  // namespace hocket
