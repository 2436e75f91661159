// Writes answers in the form of OpenAI's /v1/responses: items, and the events of its streams.
#pragma once

#include "server/generation/answer.h"

namespace hocket {

const AnswerForm& responses_form();

}  // namespace hocket
