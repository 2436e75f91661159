// The bytes of a tensor that stand for all of it in a hash. Pure.   Thread: any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace hocket {

inline constexpr size_t kSampleBytes = 4096;

inline std::string_view text_of(const std::byte* data, size_t num_bytes) {
  return {reinterpret_cast<const char*>(data), num_bytes};
}

// Returns the middle kSampleBytes of a text, all of a shorter one.
inline std::string_view middle_sample(std::string_view bytes) {
  const size_t sampled = std::min(bytes.size(), kSampleBytes);
  return bytes.substr((bytes.size() - sampled) / 2, sampled);
}

}  // namespace hocket
