// Paths that return texts and tokens of prompts without the engine: /tokenize, /detokenize,
// /tokenizer_info, /apply-template, the render paths and count_tokens.   Thread: text*.
#pragma once

#include <vector>

#include "server/generation/generation_request.h"
#include "server/routes.h"

namespace hocket {

// The objects that `model` points to must outlive the routes.
void add_text_routes(std::vector<Route>& routes, const ServedModel& model);

}  // namespace hocket
