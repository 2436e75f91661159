// Limits of the sizes and numbers in a request, the same for every API, for the C interface and for
// the fuzzers (docs/contracts/requests.md).   Thread: any.
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "core/sampling_params.h"

namespace hocket {

// A range of numbers. It never holds NaN, and with finite ends no infinity.
struct NumberRange {
  double low, high;
  bool low_excluded = false;

  bool holds(double v) const { return (low_excluded ? v > low : v >= low) && v <= high; }
  std::string text() const {
    return fmt::format("between {}{} and {}", low, low_excluded ? " (excluded)" : "", high);
  }
};

struct SamplingNumber {
  std::string_view field;
  NumberRange range;
  double SamplingParams::* value;
};

inline constexpr std::array kSamplingNumbers = {
    SamplingNumber{"temperature", {0, 2}, &SamplingParams::temperature},
    SamplingNumber{"top_p", {0, 1, true}, &SamplingParams::top_p},
    SamplingNumber{"min_p", {0, 1}, &SamplingParams::min_p},
    SamplingNumber{"frequency_penalty", {-2, 2}, &SamplingParams::frequency_penalty},
    SamplingNumber{"presence_penalty", {-2, 2}, &SamplingParams::presence_penalty},
    SamplingNumber{"repetition_penalty", {1e-3, 1e3}, &SamplingParams::repetition_penalty},
};
inline constexpr NumberRange kLogitBiasRange = {-100, 100};

inline constexpr size_t kMaxMessages = 16384;
inline constexpr size_t kMaxTools = 1024;
inline constexpr size_t kMaxToolNameBytes = 256;
inline constexpr size_t kMaxStructureChoices = 4096;  // for `choice`: the answer is one of them
inline constexpr size_t kMaxRidBytes = 256;
inline constexpr size_t kMaxSessionBytes = 256;    // for session_id
inline constexpr size_t kMaxLabelBytes = 4096;     // for user, routing_key, cache_salt, extra_key
inline constexpr int kMaxPredictedTokens = 16384;  // for prediction
inline constexpr size_t kMaxStops = 64;
inline constexpr size_t kMaxStopBytes = 1024;
inline constexpr size_t kMaxStopIds = 1024;
inline constexpr size_t kMaxStopRegexes = 4;  // different ones in one request

}  // namespace hocket
