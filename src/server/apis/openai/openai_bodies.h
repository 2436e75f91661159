// The paths that take bodies of OpenAI's chat and completions: those that ask for answers, and
// those that render a prompt as text and tokens, as vLLM's /render and llama.cpp's /apply-template.
// Thread: any.
#pragma once

#include <span>

#include "server/generation/api.h"

namespace hocket {

std::span<const ApiBody> chat_bodies();
std::span<const ApiBody> completions_bodies();

}  // namespace hocket
