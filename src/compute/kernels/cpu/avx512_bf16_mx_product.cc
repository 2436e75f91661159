#include "compute/kernels/cpu/avx512_bf16_step.h"
#include "compute/kernels/cpu/avx512_mx.inl.h"

namespace hocket::cpu {

void avx512_bf16_product_mx(const ScaledProduct<Bf16>& p) {
  product_mx<Bf16Step>(p);
}

}  // namespace hocket::cpu
