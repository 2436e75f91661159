#include "compute/kernels/cpu/avx512_product.inl.h"

namespace hocket::cpu {

void avx512_product_bf16(const Product<Bf16>& p) {
  AnyProduct<FmaStep<Bf16>>::run(p);
}
void avx512_product_f32(const Product<float>& p) {
  AnyProduct<FmaStep<float>>::run(p);
}

}  // namespace hocket::cpu
