#include "text/answers/tool_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "text/answers/bare_key_value.h"
#include "text/answers/blank.h"
#include "text/answers/call_body.h"
#include "text/answers/call_reader.h"
#include "text/answers/harmony.h"

namespace hocket {
namespace {

struct NamedTool {
  std::string_view name;
  ToolFormat format;
};

// The first name of a format is hocket's own; the others are its names in SGLang and vLLM.
constexpr std::array kTools = {
    NamedTool{"none", ToolFormat::none},
    NamedTool{"hermes", ToolFormat::hermes},
    NamedTool{"qwen", ToolFormat::hermes},
    NamedTool{"qwen25", ToolFormat::hermes},
    NamedTool{"qwen3_coder", ToolFormat::qwen3_coder},
    NamedTool{"qwen3_xml", ToolFormat::qwen3_coder},
    NamedTool{"deepseek_v3", ToolFormat::deepseek_v3},
    NamedTool{"deepseekv3", ToolFormat::deepseek_v3},
    NamedTool{"deepseek_r1", ToolFormat::deepseek_v3},
    NamedTool{"deepseek_v31", ToolFormat::deepseek_v31},
    NamedTool{"deepseekv31", ToolFormat::deepseek_v31},
    NamedTool{"llama3_json", ToolFormat::llama3_json},
    NamedTool{"llama3", ToolFormat::llama3_json},
    NamedTool{"pythonic", ToolFormat::pythonic},
    NamedTool{"llama4_pythonic", ToolFormat::pythonic},
    NamedTool{"glm45", ToolFormat::glm45},
    NamedTool{"glm", ToolFormat::glm45},
    NamedTool{"glm47", ToolFormat::glm47},
    NamedTool{"minimax_m2", ToolFormat::minimax_m2},
    NamedTool{"minimax-m2", ToolFormat::minimax_m2},
    NamedTool{"kimi_k2", ToolFormat::kimi_k2},
    NamedTool{"mistral", ToolFormat::mistral},
    NamedTool{"mimo", ToolFormat::mimo},
    NamedTool{"gpt_oss", ToolFormat::gpt_oss},
    NamedTool{"gpt-oss", ToolFormat::gpt_oss},
    NamedTool{"openai", ToolFormat::gpt_oss},
    NamedTool{"gemma4", ToolFormat::gemma4},
    NamedTool{"json", ToolFormat::json},
};

// Gemma's reasoning is one channel; the word behind its mark is no token of its own.
constexpr std::string_view kThoughtMark = "<|channel>", kThought = "<|channel>thought",
                           kEndThought = "<channel|>";

struct NamedReasoning {
  std::string_view name, open, close;
  bool implied = false, channels = false;

  ReasoningFormat format() const {
    return {std::string(open), std::string(close), implied, channels};
  }
};

constexpr std::array kReasoning = {
    NamedReasoning{"none", "", ""},
    NamedReasoning{"think", "<think>", "</think>"},
    NamedReasoning{"qwen3", "<think>", "</think>"},
    NamedReasoning{"deepseek-v3", "<think>", "</think>"},
    NamedReasoning{"glm45", "<think>", "</think>"},
    NamedReasoning{"mimo", "<think>", "</think>"},
    NamedReasoning{"kimi-k2", "<think>", "</think>"},
    NamedReasoning{"deepseek-r1", "<think>", "</think>", true},
    NamedReasoning{"qwen3-thinking", "<think>", "</think>", true},
    NamedReasoning{"minimax", "<think>", "</think>", true},
    NamedReasoning{"minimax-m2", "<think>", "</think>", true},
    NamedReasoning{"mistral", "[THINK]", "[/THINK]"},
    NamedReasoning{"kimi", "◁think▷", "◁/think▷"},
    NamedReasoning{"gemma4", kThought, kEndThought},
    NamedReasoning{"gpt-oss", harmony::kReasoning, harmony::kEnd, false, true},
    NamedReasoning{"openai-gptoss", harmony::kReasoning, harmony::kEnd, false, true},
};

template <class Table>
constexpr auto names_of(const Table& table) {
  std::array<std::string_view, std::tuple_size_v<Table>> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = table[i].name;
  return names;
}

constexpr auto kToolNames = names_of(kTools);
constexpr auto kReasoningNames = names_of(kReasoning);

ToolFormat tool_format_of(std::string_view source) {
  const auto has = [&](std::string_view text) { return source.contains(text); };
  if (has("<｜tool▁call▁begin｜>"))
    return has("```json") ? ToolFormat::deepseek_v3 : ToolFormat::deepseek_v31;
  if (has("<minimax:tool_call>")) return ToolFormat::minimax_m2;
  if (has("<|tool_call_argument_begin|>")) return ToolFormat::kimi_k2;
  if (has("<arg_key>"))  // only GLM 4.5 and 4.6 write a key and its value on two lines
    return has("</arg_key><arg_value>") ? ToolFormat::glm47 : ToolFormat::glm45;
  if (has("<function=") && has("<parameter="))  // only Qwen3-Coder puts values on their own lines
    return has("\\n</parameter>") || has("\n</parameter>") ? ToolFormat::qwen3_coder
                                                           : ToolFormat::mimo;
  if (has("<|tool_call>call:")) return ToolFormat::gemma4;
  if (has("<|channel|>commentary")) return ToolFormat::gpt_oss;
  if (has("<tool_call>")) return ToolFormat::hermes;
  if (has("[TOOL_CALLS]")) return ToolFormat::mistral;
  // Llama 4's template asks for JSON, too, although it shows earlier texts in <|python_start|>.
  if (has("\"parameters\": dictionary of argument name")) return ToolFormat::llama3_json;
  if (has("<|python_start|>") || has("[func_name1(")) return ToolFormat::pythonic;
  if (has("<|python_tag|>")) return ToolFormat::llama3_json;
  return ToolFormat::none;
}

ReasoningFormat reasoning_format_of(std::string_view source) {
  for (const NamedReasoning& one : kReasoning)
    if (!one.close.empty() && !one.implied &&
        source.contains(one.channels ? one.open : one.close))  // other families have this close
      return one.format();
  return {};
}

}  // namespace

Result<ToolFormat> choose_tool_format(std::string_view flag, std::string_view chat_template) {
  if (flag == "auto") return tool_format_of(chat_template);
  const auto found = std::ranges::find(kTools, flag, &NamedTool::name);
  if (found != kTools.end()) return found->format;
  return fail(error(ErrorCode::bad_value, "--tool-call-parser {} is unknown", flag)
                  .with_fix(fmt::format("auto, {}", fmt::join(kToolNames, ", "))));
}

Result<ReasoningFormat> choose_reasoning_format(std::string_view flag,
                                                std::string_view chat_template) {
  if (flag == "auto") return reasoning_format_of(chat_template);
  std::string name(flag);
  std::ranges::replace(name, '_', '-');
  const auto found = std::ranges::find(kReasoning, name, &NamedReasoning::name);
  if (found != kReasoning.end()) return found->format();
  return fail(error(ErrorCode::bad_value, "--reasoning-parser {} is unknown", flag)
                  .with_fix(fmt::format("auto, {}", fmt::join(kReasoningNames, ", "))));
}

std::string_view tool_format_name(ToolFormat format) {
  return std::ranges::find(kTools, format, &NamedTool::format)->name;
}

std::string_view reasoning_format_name(const ReasoningFormat& format) {
  for (const NamedReasoning& one : kReasoning)
    if (one.close == format.close && one.implied == format.implied) return one.name;
  return "none";
}

std::span<const std::string_view> tool_format_names() {
  return kToolNames;
}

std::span<const std::string_view> reasoning_format_names() {
  return kReasoningNames;
}

bool begins_with_reasoning(const ReasoningFormat& format, std::string_view prompt) {
  if (!format || ends_reasoning(format, prompt)) return false;
  return format.implied || trimmed(prompt).ends_with(format.open);
}

bool ends_reasoning(const ReasoningFormat& format, std::string_view prompt) {
  return format && trimmed(prompt).ends_with(format.channels ? harmony::kFinal
                                                             : std::string_view(format.close));
}

std::vector<std::string_view> opening_marks(ToolFormat format) {
  switch (format) {
    case ToolFormat::hermes:
    case ToolFormat::glm45:
    case ToolFormat::glm47:
      return {"<tool_call>"};
    case ToolFormat::minimax_m2:
      return {"<minimax:tool_call>"};
    case ToolFormat::kimi_k2:
      return {"<|tool_calls_section_begin|>", "<|tool_call_begin|>"};
    case ToolFormat::qwen3_coder:
    case ToolFormat::mimo:
      return {"<tool_call>", "<function="};
    case ToolFormat::deepseek_v3:
    case ToolFormat::deepseek_v31:
      return {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"};
    case ToolFormat::llama3_json:
      return {"<|python_tag|>"};
    case ToolFormat::pythonic:
      return {"<|python_start|>"};
    case ToolFormat::mistral:
      return {"[TOOL_CALLS]"};
    case ToolFormat::gemma4:
      return {"<|tool_call>"};
    case ToolFormat::gpt_oss:  // its reader separates reasoning and calls itself
    case ToolFormat::json:
    case ToolFormat::none:
      return {};
  }
  return {};
}

std::vector<std::string_view> marks_of(ToolFormat format) {
  std::vector<std::string_view> marks = opening_marks(format);
  switch (format) {
    case ToolFormat::hermes:
    case ToolFormat::qwen3_coder:
    case ToolFormat::mimo:
      marks.push_back("</tool_call>");
      break;
    case ToolFormat::glm45:
    case ToolFormat::glm47:
      for (const char* mark :
           {"</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"})
        marks.emplace_back(mark);
      break;
    case ToolFormat::deepseek_v3:
    case ToolFormat::deepseek_v31:
      for (const char* mark : {"<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"})
        marks.emplace_back(mark);
      break;
    case ToolFormat::minimax_m2:
      marks.push_back("</minimax:tool_call>");
      break;
    case ToolFormat::kimi_k2:
      for (const char* mark :
           {"<|tool_calls_section_end|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"})
        marks.emplace_back(mark);
      break;
    case ToolFormat::pythonic:
      marks.push_back("<|python_end|>");
      break;
    case ToolFormat::gemma4:
      for (const std::string_view mark : {kEndBareKeyCall, kTextMark}) marks.push_back(mark);
      break;
    case ToolFormat::gpt_oss:
      return {harmony::kMarks.begin(), harmony::kMarks.end()};
    case ToolFormat::mistral:
      for (const char* mark : {"[ARGS]", "[CALL_ID]"}) marks.emplace_back(mark);
      break;
    default:
      break;
  }
  return marks;
}

std::vector<std::string_view> marks_of(const ReasoningFormat& format) {
  if (!format) return {};
  if (format.channels) return {harmony::kMarks.begin(), harmony::kMarks.end()};
  if (format.open == kThought) return {kThoughtMark, kEndThought};
  return {format.open, format.close};
}

std::unique_ptr<CallReader> make_call_reader(ToolFormat format, CallContext context) {
  switch (format) {
    case ToolFormat::hermes:
    case ToolFormat::qwen3_coder:
    case ToolFormat::mimo:
    case ToolFormat::glm45:
    case ToolFormat::glm47:
    case ToolFormat::minimax_m2:
    case ToolFormat::gemma4:
      return make_tagged_reader(format, context);
    case ToolFormat::deepseek_v3:
    case ToolFormat::deepseek_v31:
    case ToolFormat::kimi_k2:
      return make_section_reader(format, context);
    case ToolFormat::llama3_json:
    case ToolFormat::mistral:
    case ToolFormat::json:
      return make_json_calls_reader(format, context);
    case ToolFormat::pythonic:
      return make_pythonic_reader(context);
    case ToolFormat::gpt_oss:
      return make_harmony_reader({.calls = true}, context);
    case ToolFormat::none:
      break;
  }
  return nullptr;
}

}  // namespace hocket
