// Decides where a value without quotes ends. The value may contain its own end mark, for example in
// text about the format itself. So the mark ends it only if a mark that can be behind a value
// follows, perhaps after blanks. Until that is certain nothing is passed on. A value that contains
// the mark and such a follower looks like its end, so it ends there. The parsers of vLLM and SGLang
// end a value at its first mark, whatever follows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hocket {

class ValueEnd {
 public:
  // `followers` must outlive this object; none begins another.
  explicit ValueEnd(std::vector<std::string_view> followers);

  enum class Step : uint8_t {
    more,
    ends,  // follower() is whole, so the value has ended
    text,  // mark() is part of the value; behind() must be read again
  };
  // Call when the end mark was found.
  void begin(std::string_view mark);
  // Takes the next byte behind the mark.
  Step step(char c);
  std::string_view follower() const { return follower_; }
  std::string_view mark() const { return mark_; }
  // Returns all bytes behind the mark so far.
  std::string behind() const { return blanks_ + follower_; }

 private:
  std::vector<std::string_view> followers_;
  std::string mark_, blanks_, follower_;
};

}  // namespace hocket
