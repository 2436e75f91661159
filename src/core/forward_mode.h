// The kinds of rows that a step has.
#pragma once

#include <cstdint>
#include <string_view>

namespace hocket {

// extend: chunks of prompts. decode: one row for each running request. mixed: both. idle: no row
// (the rank only takes part).
enum class ForwardMode : uint8_t { idle, extend, decode, mixed };

constexpr std::string_view forward_mode_name(ForwardMode mode) {
  switch (mode) {
    case ForwardMode::idle:
      return "idle";
    case ForwardMode::extend:
      return "extend";
    case ForwardMode::decode:
      return "decode";
    case ForwardMode::mixed:
      return "mixed";
  }
  return "?";
}

}  // namespace hocket
