#include "compute/kernels/cpu/avx512_bf16_step.h"
#include "compute/kernels/cpu/avx512_product.inl.h"

namespace hocket::cpu {

void avx512_bf16_product_bf16(const Product<Bf16>& p) {
  AnyProduct<Bf16Step>::run(p);
}

}  // namespace hocket::cpu
