// The syntax tree of an EBNF grammar.   Thread: any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hocket {

struct EbnfNode {
  enum class Kind : uint8_t { set, rule, sequence, choice, repeat };
  Kind kind = Kind::sequence;  // a sequence without parts is the empty text
  // A set is one character of these ranges; if negated, one outside of all of them.
  std::vector<std::pair<char32_t, char32_t>> ranges;
  bool negated = false;
  size_t rule = 0;              // for rule: its index
  std::vector<EbnfNode> parts;  // for sequence and choice; one for repeat
  int min = 0, max = -1;        // for repeat; max -1: no limit
};

struct EbnfRule {
  std::string name;
  EbnfNode body;
  int first_line = 0;  // first line that names it
  bool defined = false;
};

struct EbnfGrammar {
  std::vector<EbnfRule> rules;
  size_t root = 0;
};

// Errors: invalid_request, with the line. Every rule that is used is defined.
Result<EbnfGrammar> read_ebnf(std::string_view text);

}  // namespace hocket
