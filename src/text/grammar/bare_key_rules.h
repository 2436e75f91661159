// Writes the arguments of one tool's calls as Gemma writes them: a:1,b:<|"|>text<|"|>,c:{d:[true]}.
// Keys are in the order of the alphabet, as the family's template shows them. A part of a schema
// with words that this form has no rule for is followed as JSON, which the reader takes, too.
#pragma once

#include <string>

#include "base/result.h"
#include "text/answers/schema_visits.h"
#include "text/answers/tool.h"
#include "text/grammar/argument_rules.h"
#include "text/grammar/lark_writer.h"

namespace hocket {

// As argument_rules().
Result<std::string> bare_key_rules(const Tool& tool, ArgumentCheck will, LarkWriter& lark,
                                   SchemaVisits& visits);

}  // namespace hocket
