// The slots of a token in the sequence in which the tree of combine groups adds them.
#pragma once

#include <bit>
#include <climits>
#include <cstdint>

#include "compute/kernels/combine.h"

namespace hocket {

// The slots of one token, sorted by leaf; within a leaf they keep the order of add().
template <class T>
struct TokenSlots {
  const T* y[kMaxSlots];
  float weights[kMaxSlots];
  uint8_t ends[kMaxSlots];
  int leaf[kMaxSlots];
  int node[kMaxSlots];  // only if sums of several nodes are asked for
  int count = 0;

  void add(int of_leaf, const T* row, float weight, int of_node = 0) {
    HOCKET_CHECK(of_leaf >= 0 && of_leaf < kMaxCombineLeaves);
    int at = count++;
    for (; at > 0 && leaf[at - 1] > of_leaf; --at) {
      leaf[at] = leaf[at - 1];
      node[at] = node[at - 1];
      y[at] = y[at - 1];
      weights[at] = weights[at - 1];
    }
    leaf[at] = of_leaf;
    node[at] = of_node;
    y[at] = row;
    weights[at] = weight;
  }
  // Returns a row that adds the tree of slots [begin, end) to `to`. Two sums that follow each other
  // meet in the node at the height of the highest bit in which their leaves differ. It is whole
  // when a leaf beyond it follows, so that the next such height is larger.
  CombineRow<T> row(int begin, int end, int64_t cols, float* to) {
    int heights[kMaxPendingSums];  // falling: those of the nodes that wait for a child
    int num_heights = 0;
    for (int i = begin; i < end; ++i) {
      ends[i] = 0;
      const bool last = i + 1 == end;
      if (!last && leaf[i + 1] == leaf[i]) continue;
      const int next =
          last ? INT_MAX : std::bit_width(static_cast<unsigned>(leaf[i] ^ leaf[i + 1]));
      ends[i] = 1;
      for (; num_heights > 0 && heights[num_heights - 1] < next; --num_heights) ++ends[i];
      if (!last) heights[num_heights++] = next;
    }
    return {.y = y + begin,
            .weights = weights + begin,
            .ends = ends + begin,
            .num_slots = end - begin,
            .cols = cols,
            .residual = to};
  }
};

}  // namespace hocket
