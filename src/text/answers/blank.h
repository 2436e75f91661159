// The white space of JSON; models also put it around marks.
#pragma once

#include <string_view>

namespace hocket {

inline constexpr std::string_view kBlanks = " \t\n\r";

inline bool is_blank(char c) {
  return kBlanks.contains(c);
}

// Returns `text` without blanks at both ends.
inline std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

}  // namespace hocket
