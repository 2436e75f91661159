// The kinds of rows that a step has.
#pragma once

#include <cstdint>

namespace hocket {

// extend: chunks of prompts. decode: one row for each running request. mixed: both. idle: no row
// (the rank only takes part). SGLang's split_prefill, a prompt's layers over several steps, is not
// here.
enum class ForwardMode : uint8_t { idle, extend, decode, mixed };

}  // namespace hocket
