// The canonical product, one body an instruction set: everything that multiplies matrices is built
// from it.
//
//   for each k-block of 32, ascending:   e = o = +0
//     for p in 0..15:  e = fma(a[2p], b[2p], e);   o = fma(a[2p+1], b[2p+1], o)
//     c = c + (e + o)
//
// fp32 FMA, round to nearest even, FTZ and DAZ. Source: docs/contracts/arithmetic.md, "the
// canonical product".
#pragma once

#include <cstdint>

#include "base/machine.h"
#include "compute/kernels/packed_weight.h"

namespace hocket {

// y[rows, panels * 16] = (accumulate ? y : 0) + x[rows, k_blocks * 32] . w
// w: `panels` panels, panel_stride elements apart, each k_blocks tiles. x rows are x_stride
// elements apart and readable to whole blocks. rows >= 0. y may have any stride >= panels * 16.
template <class T>
struct Product {
  const T* x = nullptr;
  int64_t x_stride = 0;
  int rows = 0;
  const T* w = nullptr;
  int64_t panel_stride = 0;
  int panels = 0;
  int k_blocks = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  bool accumulate = false;
  void* scratch = nullptr;  // product_scratch_bytes(rows, k_blocks) of the calling worker's own,
                            // 64-byte aligned
};

struct ProductKernels {
  Isa isa;
  void (*bf16)(const Product<Bf16>&);
  void (*f32)(const Product<float>&);

  template <class T>
  void run(const Product<T>& p) const {
    if constexpr (sizeof(T) == sizeof(Bf16)) {
      bf16(p);
    } else {
      f32(p);
    }
  }
};

// The bodies of a level. amx and amx_emulated use tiles from a number of rows on and the vector
// body below it.
const ProductKernels& product_kernels(Isa isa);
// Enough for any body.
int64_t product_scratch_bytes(int rows, int k_blocks);

}  // namespace hocket
