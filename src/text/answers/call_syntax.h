// The text around a call's arguments, for grammars: open + name + middle + arguments + close, with
// a number before middle in some families; several calls are first + call + between + call + last.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/answers/tool_format.h"

namespace hocket {

// Says how the arguments themselves are written.
enum class ArgumentStyle : uint8_t {
  json,      // one object
  lines,     // each value on lines of its own between <parameter=a> and </parameter>
  entities,  // <parameter=a>value</parameter>, with &lt; for <
  named,     // <parameter name="a">value</parameter>
  arg_keys,  // <arg_key>a</arg_key> and <arg_value>value</arg_value>, each on a line
  arg_keys_on_one_line,
  keywords,   // a=1, b="x"
  bare_keys,  // a:1,b:<|"|>x<|"|>
};

struct CallSyntax {
  std::string_view first = {}, open = {}, middle = {}, close = {}, between = {}, last = {};
  ArgumentStyle arguments = ArgumentStyle::json;
  bool numbered = false;  // true: a colon and a number are between name and middle
};

// Returns nullopt for ToolFormat::none.
std::optional<CallSyntax> call_syntax(ToolFormat format);
// Returns the syntax of calls of newer Mistral models: [TOOL_CALLS]f[ARGS]{...}.
CallSyntax named_call_syntax();

}  // namespace hocket
