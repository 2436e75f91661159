// An EBNF grammar, read.   Thread: any.
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
  Kind kind = Kind::sequence;  // without parts: the empty text
  // set: one character of these ranges, or of none of them
  std::vector<std::pair<char32_t, char32_t>> ranges;
  bool negated = false;
  size_t rule = 0;              // rule: which
  std::vector<EbnfNode> parts;  // sequence, choice; repeat: one
  int least = 0, most = -1;     // repeat; most -1: no limit
};

struct EbnfRule {
  std::string name;
  EbnfNode body;
  int first_line = 0;  // that names it
  bool defined = false;
};

struct EbnfGrammar {
  std::vector<EbnfRule> rules;
  size_t root = 0;
};

// Errors: invalid_request with the line. All rules that are named are defined.
Result<EbnfGrammar> read_ebnf(std::string_view text);

}  // namespace hocket
