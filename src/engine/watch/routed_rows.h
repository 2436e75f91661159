// Which experts the rows of a pass chose, kept while somebody in it asks.   Thread: that of the
// pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/overlap/executor.h"

namespace hocket {

// Ids that so many rows chose in a model of so many layers: what is kept, and told, of them.
constexpr size_t num_routed_ids(int num_rows, int num_layers, int top_k) {
  return static_cast<size_t>(num_rows) * static_cast<size_t>(num_layers) *
         static_cast<size_t>(top_k);
}

class RoutedRows final : public ForwardProbe {
 public:
  // Before a pass of so many rows. Takes memory when they are more than ever.
  void open(int num_rows, int num_layers, int top_k);
  void after(int layer, Op op, const Half& half) override;
  // Of rows [begin, begin + count): [count][num_layers][top_k].
  std::span<const uint16_t> rows(int begin, int count) const;

 private:
  size_t ids_of(int num_rows) const { return num_routed_ids(num_rows, num_layers_, top_k_); }

  int num_layers_ = 0, top_k_ = 0;
  std::vector<uint16_t> ids_;
};

}  // namespace hocket
