// Writes the arguments of one tool's calls as a piece of a grammar, in the style of a model family.
// They are in the order of the schema's properties. Other arguments are allowed only if the schema
// names no property at all.
//
// In some styles values are written without quotes, and the family's parser takes their type from
// the schema. There a text follows enum, const, pattern, minLength and maxLength (format is
// ignored), and any other value is JSON that follows its schema.   Thread: any, one for each
// LarkWriter.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "text/answers/call_syntax.h"
#include "text/answers/schema_visits.h"
#include "text/answers/tool.h"
#include "text/grammar/lark_writer.h"

namespace hocket {

enum class ArgumentCheck : uint8_t {
  schema,  // as the tool's parameters demand
  any,     // any arguments
};

// A name of an argument where the schema gives none.
inline constexpr std::string_view kAnyKey = "[A-Za-z_][A-Za-z0-9_\\-]{0,63}";
// The end of refuse_parameters() if SchemaVisits are used up.
inline constexpr std::string_view kSoManySchemas =
    "have alternatives and references that lead to more than 65536 schemas, with all tools before "
    "it";
static_assert(SchemaVisits::kMax == 65'536);
// Returns the error that a style cannot write the parameters of this tool.
std::unexpected<Error> refuse_parameters(const Tool& tool, std::string_view what);

// Counts what it reads in `visits`, which all tools of a request share. Errors: invalid_request,
// with the tool's name, if the style cannot write the arguments or the visits are used up.
Result<std::string> argument_rules(const Tool& tool, ArgumentStyle style, ArgumentCheck will,
                                   LarkWriter& lark, SchemaVisits& visits);

}  // namespace hocket
