#include "text/answers/call_syntax.h"

namespace hocket {
namespace {

constexpr std::string_view kName = "{\"name\": \"", kArguments = "\", \"arguments\": ";

constexpr CallSyntax kHermes = {.open = "<tool_call>\n{\"name\": \"",
                                .middle = kArguments,
                                .close = "}\n</tool_call>",
                                .between = "\n"};
constexpr CallSyntax xml_syntax(ArgumentStyle arguments) {
  return {.open = "<tool_call>\n<function=",
          .middle = ">\n",
          .close = "</function>\n</tool_call>",
          .between = "\n",
          .arguments = arguments};
}
constexpr CallSyntax kGlm = {.open = "<tool_call>",
                             .middle = "\n",
                             .close = "</tool_call>",
                             .between = "\n",
                             .arguments = ArgumentStyle::arg_keys};
constexpr CallSyntax kGlm47 = {.open = "<tool_call>",
                               .close = "</tool_call>",
                               .arguments = ArgumentStyle::arg_keys_on_one_line};
constexpr CallSyntax kDeepseekV3 = {.first = "<｜tool▁calls▁begin｜>",
                                    .open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                                    .middle = "\n```json\n",
                                    .close = "\n```<｜tool▁call▁end｜>",
                                    .between = "\n",
                                    .last = "<｜tool▁calls▁end｜>"};
constexpr CallSyntax kDeepseekV31 = {.first = "<｜tool▁calls▁begin｜>",
                                     .open = "<｜tool▁call▁begin｜>",
                                     .middle = "<｜tool▁sep｜>",
                                     .close = "<｜tool▁call▁end｜>",
                                     .last = "<｜tool▁calls▁end｜>"};
constexpr CallSyntax kMinimaxM2 = {.first = "<minimax:tool_call>\n",
                                   .open = "<invoke name=\"",
                                   .middle = "\">\n",
                                   .close = "</invoke>\n",
                                   .last = "</minimax:tool_call>",
                                   .arguments = ArgumentStyle::named};
constexpr CallSyntax kKimiK2 = {.first = "<|tool_calls_section_begin|>",
                                .open = "<|tool_call_begin|>functions.",
                                .middle = "<|tool_call_argument_begin|>",
                                .close = "<|tool_call_end|>",
                                .last = "<|tool_calls_section_end|>",
                                .numbered = true};
constexpr CallSyntax kLlama3 = {
    .open = kName, .middle = "\", \"parameters\": ", .close = "}", .between = "; "};
constexpr CallSyntax kPythonic = {.first = "[",
                                  .middle = "(",
                                  .close = ")",
                                  .between = ", ",
                                  .last = "]",
                                  .arguments = ArgumentStyle::keywords};
constexpr CallSyntax kGemma4 = {.open = "<|tool_call>call:",
                                .middle = "{",
                                .close = "}<tool_call|>",
                                .arguments = ArgumentStyle::bare_keys};
constexpr CallSyntax kMistral = {.first = "[TOOL_CALLS][",
                                 .open = kName,
                                 .middle = kArguments,
                                 .close = "}",
                                 .between = ", ",
                                 .last = "]"};
constexpr CallSyntax kGptOss = {.open = "<|channel|>commentary to=functions.",
                                .middle = " <|constrain|>json<|message|>"};
constexpr CallSyntax kJson = {
    .first = "[", .open = kName, .middle = kArguments, .close = "}", .between = ", ", .last = "]"};

}  // namespace

std::optional<CallSyntax> call_syntax(ToolFormat format) {
  switch (format) {
    case ToolFormat::hermes:
      return kHermes;
    case ToolFormat::qwen3_coder:
      return xml_syntax(ArgumentStyle::lines);
    case ToolFormat::mimo:
      return xml_syntax(ArgumentStyle::entities);
    case ToolFormat::glm45:
      return kGlm;
    case ToolFormat::glm47:
      return kGlm47;
    case ToolFormat::minimax_m2:
      return kMinimaxM2;
    case ToolFormat::kimi_k2:
      return kKimiK2;
    case ToolFormat::deepseek_v3:
      return kDeepseekV3;
    case ToolFormat::deepseek_v31:
      return kDeepseekV31;
    case ToolFormat::llama3_json:
      return kLlama3;
    case ToolFormat::pythonic:
      return kPythonic;
    case ToolFormat::mistral:
      return kMistral;
    case ToolFormat::gemma4:
      return kGemma4;
    case ToolFormat::gpt_oss:
      return kGptOss;
    case ToolFormat::json:
      return kJson;
    case ToolFormat::none:
      break;
  }
  return std::nullopt;
}

CallSyntax named_call_syntax() {
  return {.open = "[TOOL_CALLS]", .middle = "[ARGS]"};
}

}  // namespace hocket
