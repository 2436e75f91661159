// The end of a bench that failed, and the refusal of its flags.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/setting_ranges.h"

namespace hocket {

// Prints the error on stderr, after all that stdout holds, and returns its exit status.
inline int end_with(const Error& error) {
  std::fflush(stdout);
  fmt::print(stderr, "{}\n", describe(error));
  return exit_status(error.code);
}

// Refuses a flag of a bench: "--NAME why".
inline std::unexpected<Error> bad_flag(std::string_view name, std::string_view why,
                                       std::string fix) {
  return fail(error(ErrorCode::bad_value, "--{} {}", name, why)
                  .with_fix(std::move(fix))
                  .with_param(std::string(name)));
}

// Checks the numbers of the list of a flag. Errors: bad_value, with the first that is out of range.
template <class Number>
Result<void> check_each(std::string_view name, const std::vector<Number>& numbers,
                        const NumberRange& range) {
  for (const Number number : numbers)
    if (!range.holds(static_cast<double>(number)))
      return fail(error(ErrorCode::bad_value, "--{} has {}, each number must be {}", name, number,
                        range.text())
                      .with_param(std::string(name)));
  return {};
}

}  // namespace hocket
