// The arguments of one tool's calls, as a piece of a grammar, in the style of a family. Their order
// is the schema's; what it does not name may come only where it names nothing.
//
// Values without quotes are what the family's parser gives the type back to: texts follow enum,
// const, pattern, minLength and maxLength (format is a remark), all else is JSON of its schema.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "text/answers/call_shape.h"
#include "text/answers/schema_visits.h"
#include "text/answers/tool.h"
#include "text/grammar/lark_writer.h"

namespace hocket {

enum class ArgumentWill : uint8_t {
  schema,  // as the tool's parameters say
  any,     // any arguments
};

// Takes what it looks at from `visits`, which all tools of a request share. Errors:
// invalid_request, with the tool's name, where the style has no way to write them or the visits are
// used up.
Result<std::string> argument_rules(const Tool& tool, ArgumentStyle style, ArgumentWill will,
                                   LarkWriter& lark, SchemaVisits& visits);

}  // namespace hocket
