// The paths that take bodies of OpenAI's /v1/responses: the one that asks for an answer, and the
// one that counts the tokens of an input. Thread: any.
#pragma once

#include <span>

#include "server/generation/api.h"

namespace hocket {

std::span<const ApiBody> responses_bodies();

}  // namespace hocket
