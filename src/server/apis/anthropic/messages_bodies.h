// The paths that take bodies of Anthropic's messages: the one that asks for an answer, and the one
// that counts the tokens of a prompt.
// Thread: any.
#pragma once

#include <span>

#include "server/generation/api.h"

namespace hocket {

std::span<const ApiBody> messages_bodies();

}  // namespace hocket
