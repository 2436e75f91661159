// Keeps which experts the rows of a pass chose, if a request in it asks for them. Thread: that of
// the pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compute/overlap/executor.h"

namespace hocket {

// Returns the number of expert ids that num_rows rows choose in num_layers layers.
constexpr size_t num_routed_ids(int num_rows, int num_layers, int top_k) {
  return static_cast<size_t>(num_rows) * static_cast<size_t>(num_layers) *
         static_cast<size_t>(top_k);
}

class RoutedRows final : public ForwardProbe {
 public:
  // Prepares for a pass of num_rows rows. Allocates if there are more than ever before.
  void open(int num_rows, int num_layers, int top_k);
  void after(int layer, Op op, const Half& half) override;
  // Returns the ids of rows [begin, begin + count): [count][num_layers][top_k].
  std::span<const uint16_t> rows(int begin, int count) const;

 private:
  size_t ids_of(int num_rows) const { return num_routed_ids(num_rows, num_layers_, top_k_); }

  int num_layers_ = 0, top_k_ = 0;
  std::vector<uint16_t> ids_;
};

}  // namespace hocket
