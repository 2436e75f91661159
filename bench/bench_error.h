// The end of a bench that failed, and the refusal of its flags.
#pragma once

#include <fmt/core.h>

#include <cstdio>

#include "base/result.h"

namespace hocket {

// Prints the error on stderr, after all that stdout holds, and returns its exit status.
inline int end_with(const Error& error) {
  std::fflush(stdout);
  fmt::print(stderr, "{}\n", describe(error));
  return exit_status(error.code);
}

// Refuses a flag of a bench: "--param what".
inline std::unexpected<Error> bad_flag(const char* param, const char* what) {
  return fail(error(ErrorCode::bad_value, "--{} {}", param, what).with_param(param));
}

}  // namespace hocket
