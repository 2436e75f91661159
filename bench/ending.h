// How a bench ends that could not be played.
#pragma once

#include <fmt/core.h>

#include <cstdio>

#include "base/result.h"

namespace hocket {

// The error behind whatever was printed before, and its exit status.
inline int end_with(const Error& error) {
  std::fflush(stdout);
  fmt::print(stderr, "{}\n", describe(error));
  return exit_status(error.code);
}

}  // namespace hocket
