// Converts EBNF, as users of llama.cpp (GBNF), xgrammar and SGLang write it, to Lark.
//
//   root ::= item ("," item)*      # an answer begins with `root`
//   item ::= [0-9]{1,3} | "none"
//
// A grammar whose rules do not call themselves becomes one regular expression. Any other is written
// character by character, so that no piece can swallow text that belongs to the next one.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

// Errors: invalid_request, with the line of the mistake or the name of the missing rule.
Result<std::string> lark_of_ebnf(std::string_view ebnf);

}  // namespace hocket
