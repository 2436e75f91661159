// Structural tags: free text in which certain words begin parts of a given form, such as calls of
// tools. SGLang's older form (structures, triggers), and what of xgrammar's newer one (format) can
// be said exactly.
//
//   {"type": "structural_tag", "triggers": ["<function="],
//    "structures": [{"begin": "<function=f>", "schema": {...}, "end": "</function>"}]}
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

// Errors: invalid_request, naming the part that cannot be served.
Result<std::string> lark_of_structural_tag(std::string_view json);

}  // namespace hocket
