// Writes answers in the form of SGLang's /generate.
#pragma once

#include "server/generation/answer.h"

namespace hocket {

const AnswerForm& generate_form();

}  // namespace hocket
