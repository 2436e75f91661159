// Writes answers in the format of OpenAI's /v1/responses: items, and the events of its streams.
#pragma once

#include "server/generation/answer.h"

namespace hocket {

const ApiFormat& responses_format();

}  // namespace hocket
