// The text around the arguments of a call, in the styles of families.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/answers/call_syntax.h"

namespace hocket {

// The texts around one argument: `open` before its name, `middle` between name and value, then the
// end of the value, and `after`. A value ends with `close` if it may be any text, else with
// `exact_close`.
struct ArgumentMarks {
  std::string_view open, middle, close, exact_close, after;
};

ArgumentMarks argument_marks(ArgumentStyle style);
// Returns regexes of texts that cannot be a value, with the mark at its end: a parser would end
// them too early or not read them back.
std::vector<std::string> texts_that_end(ArgumentStyle style);

}  // namespace hocket
