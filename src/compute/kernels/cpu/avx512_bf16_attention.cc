#include "compute/kernels/cpu/avx512_attention.inl.h"
#include "compute/kernels/cpu/avx512_bf16_step.h"

namespace hocket::cpu {

constinit const BlockBody<Bf16> kBf16BlockByVdpbf16ps = kBody<Bf16Step>;

}  // namespace hocket::cpu
