#include "compute/kernels/cpu/avx512_fp8.inl.h"

namespace hocket::cpu {

void avx512_vbmi_product_fp8(const ScaledProduct<Bf16>& p) {
  product_fp8<FmaStep<Bf16>>(p);
}

void avx512_vbmi_widen_tile(const std::byte* from, Bf16* to) {
  for (int at = 0; at < kTileBytes; at += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(from + kAhead + at), _MM_HINT_T1);
    const Lines lines = widen_line(from + at, kTileOrder);
    _mm512_store_si512(to + at, lines.line[0]);
    _mm512_store_si512(to + at + 32, lines.line[1]);
  }
}

}  // namespace hocket::cpu
