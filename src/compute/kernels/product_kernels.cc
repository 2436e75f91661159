#include "compute/kernels/product_kernels.h"

#include <algorithm>

#include "compute/kernels/choose.h"
#include "compute/kernels/product_bodies.h"

namespace hocket {
namespace {

void amx_bf16(const Product<Bf16>& p) {
  (p.rows < kTileRows ? cpu::avx512_product_bf16 : cpu::amx_product_bf16)(p);
}

void amx_emulated_bf16(const Product<Bf16>& p) {
  (p.rows < kTileRows ? cpu::avx512_product_bf16 : cpu::amx_emulated_product_bf16)(p);
}

constexpr ProductKernels kKernels[] = {
    {Isa::ref, ref::product_bf16, ref::product_f32, nullptr, nullptr, nullptr},
    {Isa::avx2, cpu::avx2_product_bf16, cpu::avx2_product_f32, nullptr, nullptr, nullptr},
    {Isa::avx512, cpu::avx512_product_bf16, cpu::avx512_product_f32, nullptr, nullptr, nullptr},
    {Isa::amx, amx_bf16, cpu::avx512_product_f32, nullptr, nullptr, nullptr},
    {Isa::amx_emulated, amx_emulated_bf16, cpu::avx512_product_f32, nullptr, nullptr, nullptr},
};

}  // namespace

const ProductKernels& product_kernels(Isa isa) {
  const ProductKernels& kernels = kKernels[static_cast<int>(isa)];
  HOCKET_CHECK(kernels.isa == isa);
  return kernels;
}

int64_t product_scratch_bytes(int rows, int k_blocks) {
  const int64_t k = int64_t{k_blocks} * kBlockK;
  const int64_t widened = std::min(rows, cpu::kVectorRows) * k * size_of(DType::f32);
  // The tail's rows padded to whole tiles, and its results.
  const int64_t tail =
      cpu::kTileBlockRows * (k * size_of(DType::bf16) + 2 * kPanelN * size_of(DType::f32));
  return std::max(widened, rows < kTileRows ? 0 : tail);
}

}  // namespace hocket
