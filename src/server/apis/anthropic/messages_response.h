// Writes answers in the format of Anthropic's /v1/messages: content blocks, and the events of
// streams.
#pragma once

#include "server/generation/answer.h"

namespace hocket {

const ApiFormat& messages_format();

}  // namespace hocket
