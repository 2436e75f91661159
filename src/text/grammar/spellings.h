// Converts the ways in which clients write grammars to those that can be compiled
// (core/grammar_spec.h). Thread: any.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

// Returns a regex of exactly these texts. Errors: invalid_request if there are none.
Result<std::string> regex_of_choices(std::span<const std::string> choices);
// Removes ^ at the beginning and $ at the end; a regex is for the whole text in any case.
std::string regex_without_anchors(std::string_view regex);
// Returns a regex that matches only this text.
std::string regex_of_text(std::string_view text);
// Returns a schema for %json in Lark, with blanks between its parts limited as for json_schema.
// Precondition: the text of a JSON object, or of true.
std::string embedded_schema(std::string_view schema);
// Returns the text of a schema; bytes that are not UTF-8 become U+FFFD.
std::string schema_text(const nlohmann::ordered_json& schema);

}  // namespace hocket
