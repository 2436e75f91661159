#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace hocket {

void check_failed(const char* file, int line, std::string_view what) {
  fmt::print(stderr, "{}:{}: CHECK failed: {}\n", file, line, what);
  std::fflush(stderr);
  std::abort();
}

}  // namespace hocket
