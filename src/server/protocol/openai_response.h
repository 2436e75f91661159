// Answers as OpenAI's clients read them: chat.completion, text_completion and their chunks. The
// forms themselves are reached through answer.h. A stream: role first, then text, an empty delta
// with finish_reason, with include_usage a chunk without choices, then [DONE].   Thread: any.
// Source: OpenAI's API reference.
#pragma once

#include <string>

#include "engine/engine.h"

namespace hocket {

// Equal for equal arithmetic: version and number format.
std::string system_fingerprint(const EngineInfo& info);

}  // namespace hocket
