// The end of a bench that failed.
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

}  // namespace hocket
