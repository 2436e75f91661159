// Reads the parts of blocks in GGUF files. Private to the room.   Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compute/tensor/bf16.h"

namespace hocket {

inline int byte_at(const std::byte* at) {
  return static_cast<int>(*at);
}

inline float half_at(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return f16_to_float(bits);
}

}  // namespace hocket
