#include "text/answers/mark_finder.h"

#include <algorithm>
#include <utility>

namespace hocket {

MarkFinder::MarkFinder(std::vector<std::string_view> marks) : marks_(std::move(marks)) {}

bool MarkFinder::may_begin(std::string_view text) const {
  return std::ranges::any_of(marks_, [&](std::string_view m) { return m.starts_with(text); });
}

int MarkFinder::step(char c, std::string& free) {
  held_ += c;
  size_t skip = 0;
  while (skip < held_.size() && !may_begin(std::string_view(held_).substr(skip))) ++skip;
  free.append(held_, 0, skip);
  held_.erase(0, skip);
  const auto found = std::ranges::find(marks_, std::string_view(held_));
  if (held_.empty() || found == marks_.end()) return kNone;
  held_.clear();
  return static_cast<int>(found - marks_.begin());
}

void MarkFinder::flush(std::string& free) {
  free += held_;
  held_.clear();
}

}  // namespace hocket
