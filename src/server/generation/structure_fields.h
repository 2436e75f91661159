// Reads the fields that ask for structured output into one GrammarSpec: OpenAI's response_format,
// SGLang's json_schema, regex, ebnf and structural_tag, vLLM's structured_outputs and guided_*. A
// request may have only one of them.
#pragma once

#include "core/sampling_params.h"
#include "server/http/json_body.h"

namespace hocket {

// Reads all of them except response_format, which is only at the top level.
void read_structure(Fields& fields, SamplingParams& sampling);
void read_response_format(Fields& fields, SamplingParams& sampling);

}  // namespace hocket
