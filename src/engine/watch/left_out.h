// The reasons for which a page or a state is not written to a store.   Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hocket {

enum class LeftOut : uint8_t {
  no_buffer,     // computed faster than stores take pages
  late,          // evicted, or no longer awaited, before a buffer got free
  store_away,    // the store had failed and is left alone
  write_failed,  // this write found that the store fails
  shutdown,      // the process ended
};
inline constexpr int kNumLeftOut = 5;

// The names in metrics.
inline constexpr std::array<std::string_view, kNumLeftOut> kLeftOutNames = {
    "no_buffer", "late", "store_away", "write_failed", "shutdown"};

template <class T>
using ByLeftOut = std::array<T, kNumLeftOut>;

}  // namespace hocket
