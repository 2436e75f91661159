// Paths that answer with texts and tokens of prompts, without the generator: /tokenize,
// /detokenize, /tokenizer_info, /apply-template and the render paths, count_tokens.   Thread:
// text*.
#pragma once

#include <vector>

#include "server/protocol/generation_request.h"
#include "server/routes.h"

namespace hocket {

// What `model` points to must outlive the routes.
void add_text_routes(std::vector<Route>& routes, const ServedModel& model);

}  // namespace hocket
