// Writes answers in the format of SGLang's /generate.
#pragma once

#include "server/generation/answer.h"

namespace hocket {

const ApiFormat& generate_format();

}  // namespace hocket
