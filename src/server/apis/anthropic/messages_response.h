// Writes answers in the form of Anthropic's /v1/messages: content blocks, and the events of
// streams.
#pragma once

#include "server/generation/answer.h"

namespace hocket {

const AnswerForm& messages_form();

}  // namespace hocket
