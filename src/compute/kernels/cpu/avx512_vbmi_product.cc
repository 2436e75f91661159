#include "compute/kernels/cpu/avx512_fp8.inl.h"
#include "compute/kernels/cpu/avx512_vbmi_mxfp4.inl.h"

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

void avx512_vbmi_widen_mx_tile(const MxTile& from, Bf16* to) {
  if (from.format != WeightFormat::mxfp4) return avx512_widen_mx_tile(from, to);
  const __m512i factors = VbmiMxfp4::factors(from.scales);
  for (int line = 0; line < VbmiMxfp4::kBytes; line += kLine) {
    prefetch_l2(from.numbers + kMxAhead + line);
    const __m512i eights = _mm512_loadu_si512(from.numbers + line);
    for (const Mxfp4Shifts& shifts : kMxfp4Pairs) {
      _mm512_store_si512(to, VbmiMxfp4::look_up(eights, shifts, factors));
      to += 2 * kPanelN;
    }
  }
}

}  // namespace hocket::cpu
