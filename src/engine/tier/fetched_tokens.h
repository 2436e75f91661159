// The tokens of one request whose pages were read for it, by the tier that they came from. Pure
// values.   Thread: one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/stats/page_tier.h"

namespace hocket {

class FetchedTokens {
 public:
  // Adds the tokens from `begin` up to `end`, whose pages the tree has got.
  void add(PageTier tier, int begin, int end) {
    if (parts_.empty() || parts_.back().tier != tier || parts_.back().end != begin)
      parts_.push_back({.tier = tier, .begin = begin});
    parts_.back().end = end;
  }
  // Returns how many of the first `len` tokens came from each tier. A page that was read twice
  // counts once, as far as all parts together are no more than `len`.
  PerTier<int> within(int len) const {
    PerTier<int> found{};
    int left = len;
    for (const Part& part : parts_) {
      const int count = std::clamp(std::min(part.end, len) - part.begin, 0, left);
      left -= count;
      found[static_cast<size_t>(part.tier)] += count;
    }
    return found;
  }
  void clear() { parts_.clear(); }

 private:
  struct Part {
    PageTier tier = PageTier::file;
    int begin = 0, end = 0;
  };
  std::vector<Part> parts_;  // in the order of reading, neighbours of one tier as one
};

}  // namespace hocket
