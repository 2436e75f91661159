// The record of SGLang's /generate.
#pragma once

#include "server/generation/api.h"

namespace hocket {

extern const Api kGenerateApi;

}  // namespace hocket
