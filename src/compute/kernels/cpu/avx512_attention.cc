#include "compute/kernels/cpu/avx512_attention.inl.h"

namespace hocket::cpu {

constinit const BlockBody<Bf16> kBf16BlockByFma = kBody<FmaStep<Bf16>>;
constinit const BlockBody<float> kF32BlockByFma = kBody<FmaStep<float>>;

}  // namespace hocket::cpu
