#include <cstring>

#include "compute/kernels/packed_weight.h"

namespace hocket {
namespace {

// One column of one block: 16 pairs, a panel's width apart.
template <class T>
void pack_column(const T* from, int count, T* to) {
  T padded[kBlockK] = {};
  if (count < kBlockK) {
    std::memcpy(padded, from, count * sizeof(T));
    from = padded;
  }
  for (int pair = 0; pair < kBlockK / 2; ++pair)
    std::memcpy(to + pair * 2 * kPanelN, from + 2 * pair, 2 * sizeof(T));
}

}  // namespace

template <class T>
void pack_rows(View<const T> rows, int64_t row_begin, T* packed) {
  const int64_t k_blocks = round_up(rows.cols, kBlockK) / kBlockK;
  // A panel's rows block by block, so that a tile is filled while it lies in the cache.
  for (int64_t begin = 0; begin < rows.rows;) {
    const int64_t panel_end = round_up(row_begin + begin + 1, kPanelN) - row_begin;
    const int64_t end = panel_end < rows.rows ? panel_end : rows.rows;
    for (int64_t block = 0; block < k_blocks; ++block) {
      const int64_t k = block * kBlockK;
      const int count = static_cast<int>(rows.cols - k < kBlockK ? rows.cols - k : kBlockK);
      for (int64_t row = begin; row < end; ++row)
        pack_column(rows.row(row) + k, count, packed + packed_offset(row_begin + row, k, k_blocks));
    }
    begin = end;
  }
}

template void pack_rows<Bf16>(View<const Bf16>, int64_t, Bf16*);
template void pack_rows<float>(View<const float>, int64_t, float*);

}  // namespace hocket
