#include "base/check.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/black_box.h"

namespace hocket {

void check_failed(const char* file, int line, std::string_view what) {
  fmt::print(stderr, "{}:{}: CHECK failed: {}\n", file, line, what);
  std::fflush(stderr);
  char words[256];
  const auto done =
      fmt::format_to_n(words, sizeof words, "{}:{}: CHECK failed: {}", file, line, what);
  black_box::last_words({words, std::min(done.size, sizeof words)});
  std::abort();
}

}  // namespace hocket
