// The position of a reader in its text: readers of nested values derive from it, and each of their
// functions leaves at_ behind the text that it read.
#pragma once

#include <string_view>

#include "text/answers/blank.h"

namespace hocket {

class TextCursor {
 protected:
  explicit TextCursor(std::string_view text) : text_(text) {}

  bool ended() const { return at_ == text_.size(); }
  // Returns the next character; 0 at the end.
  char here() const { return ended() ? '\0' : text_[at_]; }
  void skip_blanks() {
    while (!ended() && is_blank(here())) ++at_;
  }
  // Reads `c` and the blanks before it. Without it, only the blanks are read.
  bool take(char c) {
    skip_blanks();
    if (ended() || here() != c) return false;
    ++at_;
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace hocket
