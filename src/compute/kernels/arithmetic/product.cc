#include "compute/kernels/arithmetic/product.h"

#include <algorithm>

namespace hocket {

int64_t product_scratch_bytes(int rows, int k_blocks) {
  const int64_t k = int64_t{k_blocks} * kBlockK;
  const int64_t widened = std::min(rows, rows_together(k_blocks)) * k * size_of(DType::f32);
  // The rows of the tail, padded to whole tiles, and their results.
  const int64_t tail =
      kTileBlockRows * (k * size_of(DType::bf16) + 2 * kPanelN * size_of(DType::f32));
  return std::max(widened, rows < kTileRows ? 0 : tail);
}

int64_t scaled_product_scratch_bytes(int all_k) {
  const int64_t k = round_up(all_k, kIntegerBlockK);
  // fp8: the rows that a vector body prepares. Integers on tiles: the rows of the tail, two panels
  // of int4 under one scale, unpacked, and the sums; for short groups two panels of one span, and a
  // scale and a sum of each row and group.
  const int64_t widened = rows_together(static_cast<int>(k / kBlockK)) * k * size_of(DType::f32);
  const int64_t tiles =
      kTileBlockRows * (k + 2 * kPanelN * int64_t{sizeof(int32_t)}) + 2 * kPanelN * k;
  constexpr int64_t kSpan = int64_t{kMaxTileGroupBlocks} * kIntegerBlockK;
  constexpr int64_t kMinGroup = kIntegerBlockK / 2, kTileRow = kPanelN * sizeof(int32_t);
  const int64_t short_groups = 2 * kSpan * kPanelN + 2 * (kSpan / kMinGroup) * kPanelN * kTileRow +
                               2 * kMaxTileGroupRows * (k / kMinGroup) * int64_t{sizeof(float)} +
                               kPanelN * k;
  return std::max({widened, tiles, short_groups, kWidenedScratchBytes});
}

}  // namespace hocket
