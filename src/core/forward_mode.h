// The kinds of rows that a step has.
#pragma once

#include <cstdint>

namespace hocket {

// extend: chunks of prompts. decode: one row for each running request. mixed: both. idle: no row
// (the rank only takes part).
enum class ForwardMode : uint8_t { idle, extend, decode, mixed };

}  // namespace hocket
