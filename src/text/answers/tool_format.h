// The ways in which model families write calls and reasoning, and the choice between them by flag
// or chat template.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hocket {

enum class ToolFormat : uint8_t {
  none,
  hermes,        // <tool_call>{"name": ..., "arguments": {...}}</tool_call>; Qwen 2.5 and 3
  qwen3_coder,   // <tool_call><function=f><parameter=p>value</parameter></function></tool_call>
  deepseek_v3,   // <｜tool▁call▁begin｜>function<｜tool▁sep｜>f, then a fenced JSON block; R1 too
  deepseek_v31,  // <｜tool▁call▁begin｜>f<｜tool▁sep｜>{...}<｜tool▁call▁end｜>
  llama3_json,   // <|python_tag|>{"name": ..., "parameters": {...}}, or the JSON alone
  pythonic,      // [f(a=1), g(b="x")]
  glm45,         // <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>, on lines
  glm47,         // the same without line ends
  minimax_m2,    // <invoke name="f"><parameter name="p">value</parameter></invoke>
  kimi_k2,       // <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{...}
  mistral,       // [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]f[ARGS]{...}
  mimo,          // as qwen3_coder, or JSON as in hermes
  gpt_oss,       // <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}
  gemma4,        // <|tool_call>call:f{a:1,b:<|"|>text<|"|>}<tool_call|>
  // The whole answer is {"name": ..., "arguments": {...}}, or a list of these; a grammar makes any
  // model write so.
  json,
};

// The two marks around reasoning.
struct ReasoningFormat {
  std::string open, close;  // close is empty if the model writes no reasoning
  // True: answers begin with reasoning even without a mark. False: only if the prompt ends with an
  // open mark or the answer begins with one.
  bool implied = false;
  // True: the answer is messages of channels (harmony.h), and these are the marks of one channel.
  bool channels = false;

  explicit operator bool() const { return !close.empty(); }
  bool operator==(const ReasoningFormat&) const = default;
};

// Return the format of a flag's value. "auto" decides by the chat template (its Jinja source;
// empty: there is none). Errors: bad_value; its fix lists the names.
Result<ToolFormat> choose_tool_format(std::string_view flag, std::string_view chat_template);
Result<ReasoningFormat> choose_reasoning_format(std::string_view flag,
                                                std::string_view chat_template);
std::string_view tool_format_name(ToolFormat format);
// Returns the first name that has these marks; "none" if there is none.
std::string_view reasoning_format_name(const ReasoningFormat& format);
// Return the values that the flags take besides auto.
std::span<const std::string_view> tool_format_names();
std::span<const std::string_view> reasoning_format_names();

// Returns true if the answer to `prompt` (its end is enough) begins with reasoning: the prompt
// leaves it open, or it is implied and the prompt does not close it.
bool begins_with_reasoning(const ReasoningFormat& format, std::string_view prompt);
// Returns true if the prompt closes the reasoning, so that the answer has none.
bool ends_reasoning(const ReasoningFormat& format, std::string_view prompt);

// Return the marks of a format. Marks that are control tokens must be kept in an answer's text.
std::vector<std::string_view> marks_of(ToolFormat format);
std::vector<std::string_view> marks_of(const ReasoningFormat& format);

}  // namespace hocket
