#include "compute/kernels/router.h"

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {

void select_top_k(Backend& backend, View<const float> logits, TopKWeights kind, View<int32_t> ids,
                  View<float> weights) {
  HOCKET_CHECK(ids.rows == logits.rows);
  HOCKET_CHECK(weights.rows == logits.rows);
  HOCKET_CHECK(weights.cols == ids.cols);
  HOCKET_CHECK(ids.cols >= 1);
  HOCKET_CHECK(ids.cols <= logits.cols);
  const int64_t work = logits.cols * (ids.cols + 4);
  for_row_ranges(backend, logits.rows, work, [&](int64_t begin, int64_t end, int worker) {
    float* const scratch = backend.scratch<float>(worker, logits.cols);
    for (int64_t r = begin; r < end; ++r) {
      backend.rows().top_k({.logits = logits.row(r),
                            .num_experts = static_cast<int>(logits.cols),
                            .k = static_cast<int>(ids.cols),
                            .kind = kind,
                            .scratch = scratch,
                            .ids = ids.row(r),
                            .weights = weights.row(r)});
    }
  });
}

}  // namespace hocket
