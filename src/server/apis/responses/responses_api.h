// The record of OpenAI's /v1/responses. Its errors have the format of OpenAI's other APIs; in a
// stream they are an event `error` with the message at its top.
#pragma once

#include "server/generation/api.h"

namespace hocket {

extern const Api kResponsesApi;

}  // namespace hocket
