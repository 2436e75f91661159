// Structural tags: free text in which certain words begin parts of a given structure, such as tool
// calls. Reads SGLang's older format (structures, triggers), and those parts of xgrammar's newer
// format (format) that a grammar can express exactly.
//
//   {"type": "structural_tag", "triggers": ["<function="],
//    "structures": [{"begin": "<function=f>", "schema": {...}, "end": "</function>"}]}
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

// Returns a Lark grammar. Errors: invalid_request, which names the part that is not supported.
Result<std::string> lark_of_structural_tag(std::string_view json);

}  // namespace hocket
