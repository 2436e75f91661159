// Values without quotes may hold the mark that ends them, as text does that speaks of the format
// itself. So the mark ends a value only where one follows that can stand behind a value; blanks
// may come between. Until that is certain nothing is told, so text that was told stays so.
// A value that holds the mark and such a follower cannot be told from its end: there it ends.
// The parsers of vLLM and SGLang end a value at its first mark, whatever follows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hocket {

class ValueEnd {
 public:
  // `followers` live longer than this; none begins another.
  explicit ValueEnd(std::vector<std::string_view> followers);

  enum class Step : uint8_t {
    more,
    ends,  // follower() is whole
    text,  // mark() is text of the value, behind() what comes after it
  };
  // The end mark was found.
  void begin(std::string_view mark);
  // The next byte behind it.
  Step step(char c);
  std::string_view follower() const { return follower_; }
  std::string_view mark() const { return mark_; }
  // All bytes behind the mark so far.
  std::string behind() const { return blanks_ + follower_; }

 private:
  std::vector<std::string_view> followers_;
  std::string mark_, blanks_, follower_;
};

}  // namespace hocket
