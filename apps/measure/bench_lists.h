// Lists of numbers in the flags of benches.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "base/result.h"
#include "core/setting_ranges.h"

namespace hocket {

// Returns the numbers of all values, each a list as "512,2048"; "" adds none. Errors: bad_value,
// naming the flag.
template <class Number = int>
Result<std::vector<Number>> parse_list(const std::vector<std::string>& values, const char* flag) {
  std::vector<Number> numbers;
  for (const std::string& value : values)
    for (size_t at = 0; !value.empty() && at <= value.size();) {
      const size_t end = std::min(value.find(',', at), value.size());
      Number number = 0;
      const auto [stop, code] = std::from_chars(value.data() + at, value.data() + end, number);
      if (code != std::errc() || stop != value.data() + end)
        return fail(
            error(ErrorCode::bad_value, "--{} is '{}', must be a list of numbers", flag, value)
                .with_fix(fmt::format("--{} 1,4,16", flag))
                .with_param(flag));
      HOCKET_TRY_VOID(check_setting(flag, number));
      numbers.push_back(number);
      at = end + 1;
    }
  return numbers;
}

// Replaces the default if values were given.
inline Result<void> replace_list(const std::vector<std::string>& values, const char* flag,
                                 std::vector<int>& numbers) {
  if (values.empty()) return {};
  HOCKET_TRY(numbers, parse_list(values, flag));
  return {};
}

}  // namespace hocket
