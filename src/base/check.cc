#include "base/check.h"

#include <cstdlib>
#include <string>

#include "base/black_box.h"
#include "base/log.h"

namespace hocket {

void check_failed(const char* file, int line, std::string_view what) {
  const std::string words = fmt::format("{}:{}: CHECK failed: {}\n", file, line, what);
  log::flush();
  log::write_now(words);
  black_box::last_words(std::string_view(words).substr(0, words.size() - 1));
  std::abort();
}

}  // namespace hocket
