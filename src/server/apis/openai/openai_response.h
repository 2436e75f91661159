// Writes answers for OpenAI's clients: chat.completion, text_completion and their chunks. A stream
// sends the role first, then text, an empty delta with finish_reason, with include_usage a chunk
// without choices, then [DONE].   Thread: any. Source: OpenAI's API reference.
#pragma once

#include <string>

#include "server/generation/answer.h"

namespace hocket {

const ApiFormat& chat_format();
const ApiFormat& completions_format();

// Returns version and number format; it is equal for servers that compute the same numbers.
std::string system_fingerprint(const EngineInfo& info);

}  // namespace hocket
