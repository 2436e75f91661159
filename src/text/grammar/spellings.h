// The ways in which clients spell a grammar, turned into those that grammars are compiled from
// (core/grammar.h). Thread: any.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

// A regex of exactly these texts. Errors: invalid_request where there are none.
Result<std::string> regex_of_choices(std::span<const std::string> choices);
// A regex is of the whole text anyway, so ^ at its begin and $ at its end say nothing.
std::string regex_without_anchors(std::string_view regex);
// Matches this text only.
std::string regex_of_text(std::string_view text);
// A schema with blanks between its parts bounded as those of json_schema are, for %json in Lark.
// Pre: the text of a JSON object, or of true.
std::string embedded_schema(std::string_view schema);

}  // namespace hocket
