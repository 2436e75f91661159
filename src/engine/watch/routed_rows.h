// Which experts the rows of a pass chose, kept while somebody in it asks.   Thread: that of the
// pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/overlap/executor.h"

namespace hocket {

class RoutedRows final : public ForwardProbe {
 public:
  // Before a pass of so many rows. Takes memory when they are more than ever.
  void open(int num_rows, int num_layers, int top_k);
  void after(int layer, Op op, const Half& half) override;
  // Of rows [begin, begin + count): [count][num_layers][top_k].
  std::span<const uint16_t> rows(int begin, int count) const;

 private:
  size_t row_size() const { return static_cast<size_t>(num_layers_) * static_cast<size_t>(top_k_); }

  int num_layers_ = 0, top_k_ = 0;
  std::vector<uint16_t> ids_;
};

}  // namespace hocket
