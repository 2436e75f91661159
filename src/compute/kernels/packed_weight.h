// Weights in the one layout that AMX tiles and the vector kernels both read:
//
//   [n / 16 panels][k / 32 blocks][16 pairs][16 columns][2]     element (n, k) stands at
//   panel n/16, block k/32, pair (k%32)/2, column n%16, k%2
//
// A block is 512 elements (1 KiB in bf16). n is padded to whole panels and k to whole blocks, with
// zeros. Pages of the KV cache use the same tiles (kv_layout.h).
#pragma once

#include <cstdint>

#include "compute/tensor/view.h"

namespace hocket {

inline constexpr int kPanelN = 16;
inline constexpr int kTileElements = kPanelN * kBlockK;

// Borrowed; owned by the model's weight memory.
struct PackedWeight {
  const void* data = nullptr;
  DType dtype = DType::bf16;  // bf16 or f32
  int n = 0, k = 0;           // logical: y[n] = sum over k

  int panels() const { return static_cast<int>(round_up(n, kPanelN) / kPanelN); }
  int k_blocks() const { return static_cast<int>(round_up(k, kBlockK) / kBlockK); }
  int64_t panel_elements() const { return int64_t{k_blocks()} * kTileElements; }
  int64_t bytes() const { return panels() * panel_elements() * size_of(dtype); }
  template <class T>
  const T* panel(int p) const {
    return static_cast<const T*>(data) + p * panel_elements();
  }
};

// Offset of element (n, k) in a packed matrix of k_blocks.
constexpr int64_t packed_offset(int64_t n, int64_t k, int64_t k_blocks) {
  return (n / kPanelN * k_blocks + k / kBlockK) * kTileElements + k % kBlockK / 2 * 32 +
         n % kPanelN * 2 + k % 2;
}

// Packs rows [row_begin, row_begin + rows.rows) of a matrix of k = rows.cols columns into `packed`;
// padding columns are written as zero. T: bf16 or float, as the packed type.
// Thread: any, for disjoint panels.
template <class T>
void pack_rows(View<const T> rows, int64_t row_begin, T* packed);

}  // namespace hocket
