// One table of product bodies for each instruction set (arithmetic/product.h defines the sums).
#pragma once

#include "base/machine.h"
#include "compute/kernels/arithmetic/product.h"

namespace hocket {

struct ProductKernels {
  Isa isa;
  void (*bf16)(const Product<Bf16>&);
  void (*f32)(const Product<float>&);
  void (*fp8)(const ScaledProduct<Bf16>&);
  void (*int8)(const ScaledProduct<int8_t>&);
  void (*int4)(const ScaledProduct<int8_t>&);
  void (*q8_0)(const ScaledProduct<int8_t>&);
  void (*q4_k)(const ScaledProduct<int8_t>&);
  void (*table)(const ScaledProduct<int8_t>&);  // iq4 to tq
  void (*mx)(const ScaledProduct<Bf16>&);       // mxfp4, mxfp8, nvfp4

  auto integer(WeightFormat format) const {
    if (has_table(format)) return table;
    if (format == WeightFormat::q4_k) return q4_k;
    if (format == WeightFormat::q8_0) return q8_0;
    return format == WeightFormat::int8 ? int8 : int4;
  }
  template <class T>
  void run(const Product<T>& p) const {
    if constexpr (sizeof(T) == sizeof(Bf16)) {
      bf16(p);
    } else {
      f32(p);
    }
  }
};

// Returns the bodies of a level. amx and amx_emulated use tiles from kTileRows rows on and the
// vector body below.
const ProductKernels& product_kernels(Isa isa);

}  // namespace hocket
