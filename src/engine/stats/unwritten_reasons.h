// The reasons for which a page or a state is not written to a store, and those for which a prompt
// is computed although its pages may be in one.   Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace hocket {

enum class UnwrittenReason : uint8_t {
  no_buffer,     // computed faster than stores take pages
  late,          // evicted, or no longer awaited, before a buffer got free
  store_away,    // the store failed a moment ago and is not used
  write_failed,  // this write found that the store fails
  shutdown,      // the process ended
  no_memory,     // there was too little memory to write it
};
inline constexpr int kNumUnwrittenReasons = 6;

// The names in metrics.
inline constexpr std::array<std::string_view, kNumUnwrittenReasons> kUnwrittenReasonNames = {
    "no_buffer", "late", "store_away", "write_failed", "shutdown", "no_memory"};

template <class T>
using ByUnwrittenReason = std::array<T, kNumUnwrittenReasons>;

enum class UnreadReason : uint8_t {
  expected_slower,  // reading was expected to take longer than computing
  queue_full,       // too many prompts wait for their pages
  store_away,       // all stores failed a moment ago and are not used
  no_memory,        // there was too little memory to ask for them
};
inline constexpr int kNumUnreadReasons = 4;
inline constexpr std::array<std::string_view, kNumUnreadReasons> kUnreadReasonNames = {
    "expected_slower", "queue_full", "store_away", "no_memory"};

template <class T>
using ByUnreadReason = std::array<T, kNumUnreadReasons>;

}  // namespace hocket
