// How families of models write calls and thoughts, and which family a chat template belongs to.
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
  glm45,         // <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>
  mistral,       // [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]f[ARGS]{...}
  mimo,          // as qwen3_coder, or the JSON of hermes
  json,          // the whole answer is {"name": ..., "arguments": {...}}, or a list of such: what a
                 // grammar makes of any model
};

// The thoughts stand between two marks.
struct ReasoningFormat {
  std::string open, close;  // empty: the model does not think aloud
  // The answer begins with thoughts though nothing says so; else only where the prompt ends with an
  // open mark or the answer begins with one.
  bool implied = false;

  explicit operator bool() const { return !close.empty(); }
  bool operator==(const ReasoningFormat&) const = default;
};

// Flag values. "auto" looks at the chat template (its Jinja source; empty: there is none).
// Errors: bad_value, which lists the names.
Result<ToolFormat> choose_tool_format(std::string_view flag, std::string_view chat_template);
Result<ReasoningFormat> choose_reasoning_format(std::string_view flag,
                                                std::string_view chat_template);
std::string_view tool_format_name(ToolFormat format);
// The first name with these marks; "none".
std::string_view reasoning_format_name(const ReasoningFormat& format);
// What the flags take besides auto.
std::span<const std::string_view> tool_format_names();
std::span<const std::string_view> reasoning_format_names();

// Whether the answer to this prompt (its end is enough) begins with thoughts: the prompt leaves
// them open, or they are implied and it does not close them.
bool begins_with_reasoning(const ReasoningFormat& format, std::string_view prompt);
// Whether the prompt closes them, so that the answer has none.
bool ends_reasoning(const ReasoningFormat& format, std::string_view prompt);

// The marks of both formats. Where they are control tokens, an answer's text must keep them.
std::vector<std::string_view> marks_of(ToolFormat format);
std::vector<std::string_view> marks_of(const ReasoningFormat& format);

}  // namespace hocket
