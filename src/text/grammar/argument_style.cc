#include "text/grammar/argument_style.h"

namespace hocket {

ArgumentMarks argument_marks(ArgumentStyle style) {
  switch (style) {
    case ArgumentStyle::lines:
      return {"<parameter=", ">\n", "</parameter>", "\n</parameter>", "\n"};
    case ArgumentStyle::entities:
      return {"<parameter=", ">", "</parameter>", "</parameter>", "\n"};
    case ArgumentStyle::named:
      return {"<parameter name=\"", "\">", "</parameter>", "</parameter>", "\n"};
    case ArgumentStyle::arg_keys:
      return {"<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>", "</arg_value>", "\n"};
    case ArgumentStyle::arg_keys_on_one_line:
      return {"<arg_key>", "</arg_key><arg_value>", "</arg_value>", "</arg_value>", ""};
    case ArgumentStyle::keywords:
    case ArgumentStyle::bare_keys:
    case ArgumentStyle::json:
      break;
  }
  return {"", "=", "", "", ""};
}

std::vector<std::string> texts_that_end(ArgumentStyle style) {
  switch (style) {
    case ArgumentStyle::lines:
      return {"(?s:.*)\\n<(parameter=|/function>)(?s:.*)", "(?s:.*)[^\\n]</parameter>(?s:.+)",
              "</parameter>(?s:.+)"};
    case ArgumentStyle::entities:
      return {"(?s:.*)<(?s:.*)</parameter>"};
    case ArgumentStyle::named:
      return {"(?s:.*)\\n<(parameter name=|/invoke>)(?s:.*)"};
    default:
      return {};
  }
}

}  // namespace hocket
