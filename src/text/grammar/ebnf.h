// EBNF as users of llama.cpp (GBNF), xgrammar and SGLang write it, to Lark.
//
//   root ::= item ("," item)*      # `root` is where it begins
//   item ::= [0-9]{1,3} | "none"
//
// A grammar whose rules do not call themselves becomes one regular expression. Any other is spelled
// character by character, so that no piece of it can swallow what belongs to the next one.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

// Errors: invalid_request with the line at which it goes wrong, or the rule that is missing.
Result<std::string> lark_of_ebnf(std::string_view ebnf);

}  // namespace hocket
