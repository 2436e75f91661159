// Finds marks such as "<tool_call>" in text that arrives byte by byte, and holds back only what may
// still become one. Of marks that end at the same byte the longest is found.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hocket {

class MarkFinder {
 public:
  // `marks` live longer than this. None may occur inside another but at its end.
  explicit MarkFinder(std::vector<std::string_view> marks);

  static constexpr int kNone = -1;
  // Takes the next byte. Which mark it completes; what can be none any more is appended to `free`.
  int step(char c, std::string& free);
  // The text has ended: what was held back.
  void flush(std::string& free);
  bool holds() const { return !held_.empty(); }
  std::string_view mark(int i) const { return marks_[static_cast<size_t>(i)]; }

 private:
  bool may_begin(std::string_view text) const;

  std::vector<std::string_view> marks_;
  std::string held_;  // the longest end of the text that begins a mark
};

}  // namespace hocket
