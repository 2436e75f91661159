// How a call is spelled around its arguments, for grammars: open + name + middle + arguments +
// close, and several of them first + call + between + call + last.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "text/answers/answer_format.h"

namespace hocket {

// How the arguments themselves are written.
enum class ArgumentStyle : uint8_t {
  json,      // one object
  lines,     // <parameter=a>, the value, </parameter>, each on lines of their own
  entities,  // <parameter=a>value</parameter>, &lt; for <
  arg_keys,  // <arg_key>a</arg_key> and <arg_value>value</arg_value>
  keywords,  // a=1, b="x"
};

struct CallShape {
  std::string_view first = {}, open = {}, middle = {}, close = {}, between = {}, last = {};
  ArgumentStyle arguments = ArgumentStyle::json;
};

// Nothing for ToolFormat::none.
std::optional<CallShape> call_shape(ToolFormat format);
// As newer models of Mistral write them: [TOOL_CALLS]f[ARGS]{...}.
CallShape named_call_shape();

}  // namespace hocket
