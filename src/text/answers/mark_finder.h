// Finds marks such as "<tool_call>" in text that arrives byte by byte. It holds back only text that
// may still become a mark. If several marks end at the same byte, it finds the longest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace hocket {

class MarkFinder {
 public:
  // `marks` must outlive this object. None may occur inside another, except at its end.
  explicit MarkFinder(std::vector<std::string_view> marks);

  static constexpr int kNone = -1;
  // Takes the next byte and returns the index of the mark that it completes, or kNone. Text that
  // can no longer become a mark is appended to `free`.
  int step(char c, std::string& free);
  // Ends the text: appends the held text to `free`.
  void flush(std::string& free);
  bool holds() const { return !held_.empty(); }
  std::string_view mark(int i) const { return marks_[static_cast<size_t>(i)]; }

 private:
  bool may_begin(std::string_view text) const;

  std::vector<std::string_view> marks_;
  std::string held_;  // the longest end of the text that begins a mark
};

}  // namespace hocket
