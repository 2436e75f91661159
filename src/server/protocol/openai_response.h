// Writes answers for OpenAI's clients: chat.completion, text_completion and their chunks. answer.h
// declares the forms. A stream sends the role first, then text, an empty delta with finish_reason,
// with include_usage a chunk without choices, then [DONE].   Thread: any.
// Source: OpenAI's API reference.
#pragma once

#include <string>

#include "engine/engine.h"

namespace hocket {

// Returns version and number format; it is equal for servers that compute the same numbers.
std::string system_fingerprint(const EngineInfo& info);

}  // namespace hocket
