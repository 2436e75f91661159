// One table of product bodies for each instruction set (arithmetic/product.h defines the sums).
#pragma once

#include "base/machine.h"
#include "compute/kernels/arithmetic/product.h"

namespace hocket {

struct IntegerKernels {
  using Body = void (*)(const ScaledProduct<int8_t>&);
  Body int8, int4, q8_0, q4_k, q5_k, q6_k;
  Body table, table_of_16;  // iq4 to tq; q3_k, iq2_s, iq1_m

  Body of(WeightFormat format) const {
    if (has_table(format)) return has_scales_of_16(format) ? table_of_16 : table;
    switch (format) {
      case WeightFormat::int8:
        return int8;
      case WeightFormat::q8_0:
        return q8_0;
      case WeightFormat::q4_k:
        return q4_k;
      case WeightFormat::q5_k:
        return q5_k;
      case WeightFormat::q6_k:
        return q6_k;
      default:
        return int4;
    }
  }
};

struct ProductKernels {
  Isa isa;
  void (*bf16)(const Product<Bf16>&);
  void (*f32)(const Product<float>&);
  void (*fp8)(const ScaledProduct<Bf16>&);
  IntegerKernels integers;
  void (*mx)(const ScaledProduct<Bf16>&);  // mxfp4, mxfp8, nvfp4

  IntegerKernels::Body integer(WeightFormat format) const { return integers.of(format); }
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
