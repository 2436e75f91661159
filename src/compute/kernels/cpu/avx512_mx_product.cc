#include "compute/kernels/cpu/avx512_mx.inl.h"

namespace hocket::cpu {
namespace {

template <WeightFormat kFormat>
void widen_tile(const MxTile& from, Bf16* to) {
  using Format = Mx<kFormat>;
  for (int quad = 0; quad < kQuads; ++quad, to += 4 * kPanelN) {
    const __m512 factors = Format::factors(from.scales + quad / Format::kQuadsAGroup * kPanelN);
    const QuadNumbers numbers = Format::widen(from.numbers, quad, factors);
    _mm512_store_ps(to, halves(numbers.k[1], numbers.k[0]));
    _mm512_store_ps(to + 2 * kPanelN, halves(numbers.k[3], numbers.k[2]));
  }
  for (int line = 0; line < Format::kBytes; line += kLine)
    prefetch_l2(from.numbers + kMxAhead + line);
}

}  // namespace

void avx512_product_mx(const ScaledProduct<Bf16>& p) {
  product_mx<FmaStep<Bf16>>(p);
}

void avx512_widen_mx_tile(const MxTile& from, Bf16* to) {
  switch (from.format) {
    case WeightFormat::mxfp4:
      return widen_tile<WeightFormat::mxfp4>(from, to);
    case WeightFormat::mxfp8:
      return widen_tile<WeightFormat::mxfp8>(from, to);
    default:  // nvfp4
      return widen_tile<WeightFormat::nvfp4>(from, to);
  }
}

}  // namespace hocket::cpu
