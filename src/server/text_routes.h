// Paths that return texts and tokens of prompts without the engine: /tokenizer_info, and those that
// the APIs' records name (ApiBody::answer).   Thread: text*.
#pragma once

#include <vector>

#include "server/generation/generation_request.h"
#include "server/routes.h"

namespace hocket {

// The objects that `model` points to must outlive the routes.
void add_text_routes(std::vector<Route>& routes, const ServedModel& model);

}  // namespace hocket
