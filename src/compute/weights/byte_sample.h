// The bytes of a tensor that stand for all of it in a hash. Pure.   Thread: any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

namespace hocket {

inline constexpr size_t kSampleBytes = 4096;

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns the middle kSampleBytes, all of fewer bytes.
inline std::span<const std::byte> middle_sample(std::span<const std::byte> bytes) {
  const size_t sampled = std::min(bytes.size(), kSampleBytes);
  return bytes.subspan((bytes.size() - sampled) / 2, sampled);
}

}  // namespace hocket
