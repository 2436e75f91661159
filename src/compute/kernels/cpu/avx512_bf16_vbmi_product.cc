#include "compute/kernels/cpu/avx512_bf16_step.h"
#include "compute/kernels/cpu/avx512_fp8.inl.h"
#include "compute/kernels/cpu/avx512_vbmi_mxfp4.inl.h"

namespace hocket::cpu {

void avx512_bf16_vbmi_product_fp8(const ScaledProduct<Bf16>& p) {
  product_fp8<Bf16Step>(p);
}

void avx512_bf16_vbmi_product_mx(const ScaledProduct<Bf16>& p) {
  product_mx<Bf16Step, VbmiMxfp4>(p);
}

}  // namespace hocket::cpu
