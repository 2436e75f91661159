// The paths that take bodies of SGLang's API: /generate, /tokenize, /detokenize, /abort_request.
// Thread: any.
#pragma once

#include <span>

#include "server/generation/api.h"

namespace hocket {

std::span<const ApiBody> generate_bodies();

}  // namespace hocket
