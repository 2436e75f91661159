// A set of the ranks of one service. Thread: a value; any.
#pragma once

#include <bitset>
#include <string>

#include "base/check.h"

namespace hocket {

class RankSet {
 public:
  static constexpr int kMaxRank = 127;

  // Returns the ranks 0 to num_ranks - 1.
  static RankSet all(int num_ranks) {
    RankSet set;
    for (int rank = 0; rank < num_ranks; ++rank) set.add(rank);
    return set;
  }
  void add(int rank) {
    HOCKET_CHECK(rank >= 0 && rank <= kMaxRank);
    ranks_.set(static_cast<size_t>(rank));
  }
  bool has(int rank) const {
    return rank >= 0 && rank <= kMaxRank && ranks_.test(static_cast<size_t>(rank));
  }
  int size() const { return static_cast<int>(ranks_.count()); }
  // Returns the ranks of this set that are not in `other`.
  RankSet without(const RankSet& other) const {
    RankSet left = *this;
    left.ranks_ &= ~other.ranks_;
    return left;
  }
  // Returns the lowest rank; -1 if there is none.
  int first() const {
    for (int rank = 0; rank <= kMaxRank; ++rank)
      if (has(rank)) return rank;
    return -1;
  }
  // Returns "0,2".
  std::string text() const {
    std::string text;
    for (int rank = 0; rank <= kMaxRank; ++rank)
      if (has(rank)) text += (text.empty() ? "" : ",") + std::to_string(rank);
    return text;
  }

  bool operator==(const RankSet&) const = default;

 private:
  std::bitset<kMaxRank + 1> ranks_;
};

}  // namespace hocket
