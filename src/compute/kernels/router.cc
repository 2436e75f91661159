#include "compute/kernels/router.h"

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {

void select_experts(Backend& backend, const ExpertChoice& choice) {
  const auto& [logits, bias, scales, moe, ids, weights] = choice;
  HOCKET_CHECK(logits.cols == moe.num_experts);
  HOCKET_CHECK((bias.empty() || std::ssize(bias) == logits.cols));
  HOCKET_CHECK((scales.empty() || std::ssize(scales) == logits.cols));
  HOCKET_CHECK(ids.rows == logits.rows);
  HOCKET_CHECK(weights.rows == logits.rows);
  HOCKET_CHECK(ids.cols == moe.top_k);
  HOCKET_CHECK(weights.cols == moe.top_k);
  HOCKET_CHECK(moe.num_groups >= 1 && moe.num_experts % moe.num_groups == 0);
  const int group_size = moe.num_experts / moe.num_groups;
  if (moe.num_groups > 1) {
    HOCKET_CHECK(moe.top_groups >= 1 && moe.top_groups <= moe.num_groups);
    HOCKET_CHECK(moe.top_k <= moe.top_groups * group_size);
    HOCKET_CHECK((moe.group_score == MoeConfig::GroupScore::best || group_size >= 2));
  }
  HOCKET_CHECK(moe.top_k >= 1 && moe.top_k <= moe.num_experts);
  const int64_t work = logits.cols * (ids.cols + 4);
  for_row_ranges(backend, logits.rows, work, [&](int64_t begin, int64_t end, int worker) {
    float* const scratch = backend.scratch<float>(worker, 3 * choice.logits.cols);
    for (int64_t r = begin; r < end; ++r) {
      backend.rows().top_k({.logits = choice.logits.row(r),
                            .bias = choice.bias.empty() ? nullptr : choice.bias.data(),
                            .moe = &choice.moe,
                            .scratch = scratch,
                            .ids = choice.ids.row(r),
                            .weights = choice.weights.row(r)});
      for (int s = 0; s < choice.moe.top_k && !choice.scales.empty(); ++s)
        choice.weights.row(r)[s] *= choice.scales[choice.ids.row(r)[s]];
    }
  });
}

}  // namespace hocket
