// The range of each numeric setting, the same for flags, environment variables, the YAML file and
// the C API. A flag of another command with the same name has the same range. Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"
#include "core/request_bounds.h"

namespace hocket {

struct SettingRange {
  std::string_view name;
  NumberRange range;
};

inline constexpr NumberRange kCountRange{0, 1e6};    // requests, connections, files
inline constexpr NumberRange kWaitRange{1e-3, 1e9};  // seconds; a wait of 0 would end at once
inline constexpr NumberRange kTokensRange{0, 1e12};  // tokens of a pool
inline constexpr NumberRange kShareRange{0, 1};
inline constexpr NumberRange kSeedRange{-0x1p63, 0x1p63};

// The settings whose range is not default_range().
inline constexpr auto kSettingRanges = std::to_array<SettingRange>({
    {"mem-fraction-static", kShareRange},
    {"swa-full-tokens-ratio", kShareRange},
    {"max-total-tokens", kTokensRange},
    {"max-running-requests", kCountRange},
    {"max-queued-requests", kCountRange},
    {"max-queued-tokens", kTokensRange},
    {"page-size", {1, 128}},
    {"session-timeout", {0, 1e9}},
    {"chunked-prefill-size", {-1, 1e9}},
    {"max-prefill-tokens", {1, 1e9}},
    {"max-chunked-requests", {1, 1e6}},
    {"schedule-conservativeness", {0, 1e6}},
    {"schedule-seed", kSeedRange},
    {"in-batch-prefix-check", {-1, 1e9}},
    {"speculative-num-steps", {0, 8}},
    {"speculative-num-draft-tokens", {0, 9}},
    {"speculative-eagle-topk", {0, 64}},
    {"num-threads", {0, 4096}},
    {"combine-groups", {0, 4096}},
    {"ep-size", {0, 65536}},
    {"ep-link-gbit", {0, 1e6}},
    {"ep-link-latency-us", {0, 1e6}},
    {"nnodes", {0, 65536}},
    {"node-rank", {-1, 65535}},
    {"ranks-per-node", {0, 4096}},
    {"tbo-token-distribution-threshold", kShareRange},
    {"port", {0, 65535}},
    {"max-connections", {1, 1e6}},
    {"max-body-bytes", {1, 1e12}},
    {"request-memory-mib", {1, 1e9}},
    {"key-memory-mib", {1, 1e9}},
    {"total-request-memory-mib", {1, 1e9}},
    {"header-timeout", kWaitRange},
    {"body-timeout", kWaitRange},
    {"write-timeout", kWaitRange},
    {"idle-timeout", kWaitRange},
    {"log-requests-level", {0, 3}},
    {"dump-requests-bytes", {1, 1e15}},
    {"dump-requests-files", {1, 1e6}},
    // These are flags of commands other than serve.
    {"temperature", {-1, 1e3}},
    {"top-p", {-1, 1}},
    {"rank", {-1, 65535}},
    {"num-ranks", {1, 65536}},
    {"ranks", {1, 65536}},
    {"rounds", {1, 1e6}},
    {"num-requests", {1, 1e7}},
    {"max-concurrency", kCountRange},
    {"num-prompts", {1, 1e7}},
    {"step", {-1, 1e15}},
    {"steps", kCountRange},
    {"timeout", kWaitRange},
    {"interval", kWaitRange},
    {"speed", {1e-6, 1e6}},
});

// Returns the range of all other settings. The sum of two signed values in it does not overflow.
template <class Number>
constexpr NumberRange default_range() {
  if constexpr (std::is_same_v<Number, int64_t>) return {0, 1e15};
  // Larger: a negative number was given.
  if constexpr (std::is_same_v<Number, uint64_t>) return {0, 0x1p63};
  return {0, 1e9};
}

template <class Number>
constexpr NumberRange setting_range(std::string_view name) {
  for (const SettingRange& one : kSettingRanges)
    if (one.name == name) return one.range;
  return default_range<Number>();
}

// Checks a number whose flag is `name`, without "--", against a range that one command has. Errors:
// bad_value, with the value and its range; NaN is outside of every range.
template <class Number>
Result<void> check_number(std::string_view name, const Number& value, const NumberRange& range) {
  if (range.holds(static_cast<double>(value))) return {};
  return fail(error(ErrorCode::bad_value, "--{} is {}, must be {}", name, value, range.text())
                  .with_param(std::string(name)));
}

// Checks a setting against its range in the table. Errors: those of check_number().
template <class Number>
Result<void> check_setting(std::string_view name, const Number& value) {
  if constexpr (std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>)
    return check_number(name, value, setting_range<Number>(name));
  return {};
}

}  // namespace hocket
