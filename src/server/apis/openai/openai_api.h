// The records of OpenAI's /v1/chat/completions and /v1/completions.
#pragma once

#include "server/generation/api.h"

namespace hocket {

extern const Api kChatApi, kCompletionsApi;

}  // namespace hocket
