// Converts values as Gemma writes them to JSON: {a:<|"|>text<|"|>,b:[1,true]}. A text is between
// two equal marks, and no escape occurs in it. Values as JSON and Python write them are read, too.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/answers/mark_finder.h"

namespace hocket {

inline constexpr std::string_view kTextMark = "<|\"|>";  // around texts and some keys

// Returns nullopt if `text` is no object or list, or nests deeper than 64 levels.
std::optional<std::string> bare_keys_to_json(std::string_view text);
// Returns the key without its marks or quotes; nullopt if it has one at its beginning alone.
std::optional<std::string_view> bare_key(std::string_view written);

// Follows an object, a list or a quoted text byte by byte up to its end.
class NestedEnd {
 public:
  // Returns true if this byte is the last.
  bool step(char c);

 private:
  void take_structure(char c);

  MarkFinder finder_{{kTextMark}};
  bool in_marks_ = false;  // true: within a text between marks
  char quote_ = 0;         // the quote around the current text; 0: outside of quotes
  bool escaped_ = false;
  bool value_begins_ = true;  // true: a quote or mark here opens a text
  int depth_ = 0;
};

}  // namespace hocket
