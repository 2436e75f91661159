#include "text/answers/value_end.h"

#include <algorithm>
#include <utility>

#include "text/answers/blank.h"

namespace hocket {

ValueEnd::ValueEnd(std::vector<std::string_view> followers) : followers_(std::move(followers)) {}

void ValueEnd::begin(std::string_view mark) {
  mark_ = mark;
  blanks_.clear();
  follower_.clear();
}

ValueEnd::Step ValueEnd::step(char c) {
  if (follower_.empty() && is_blank(c)) {
    blanks_ += c;
    return Step::more;
  }
  follower_ += c;
  const auto begins = [&](std::string_view one) { return one.starts_with(follower_); };
  if (!std::ranges::any_of(followers_, begins)) return Step::text;
  return std::ranges::find(followers_, follower_) == followers_.end() ? Step::more : Step::ends;
}

}  // namespace hocket
