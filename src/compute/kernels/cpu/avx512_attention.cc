#include "compute/kernels/cpu/avx512_attention.inl.h"

namespace hocket::cpu {

constinit const BlockBody<Bf16> kAvx512BlockBf16 = kBody<FmaStep<Bf16>>;
constinit const BlockBody<float> kAvx512BlockF32 = kBody<FmaStep<float>>;

}  // namespace hocket::cpu
