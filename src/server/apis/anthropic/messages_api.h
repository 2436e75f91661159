// The record of Anthropic's /v1/messages.
//
// Its errors are {"type": "error", "error": {"type", "message", "param", "code", "hint", "doc"}},
// with Anthropic's types; in a stream the event `error`.
#pragma once

#include "server/generation/api.h"

namespace hocket {

extern const Api kMessagesApi;

}  // namespace hocket
