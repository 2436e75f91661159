// What ends a group of integer products, sixteen columns at a time.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "compute/kernels/packed_weight.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

struct GroupColumns {
  __m512i zero;
  __m512 scale;
};
inline __m512i load_zeros(const uint8_t* zeros) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(zeros)));
}
// `at`: the first of the sixteen among all scales.
template <WeightFormat kFormat>
inline __m512 load_scales(const std::byte* scales, int64_t at) {
  scales += at * scale_size(kFormat);
  if constexpr (kFormat != WeightFormat::int4) return _mm512_loadu_ps(scales);
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(scales)));
}
template <WeightFormat kFormat>
inline GroupColumns load_group(const uint8_t* zeros, const std::byte* scales, int64_t at) {
  return {load_zeros(zeros + at), load_scales<kFormat>(scales, at)};
}
// acc = fma(float(sum - zero * x_sum), x_scale * scale, acc)
inline __m512 add_group(__m512i sum, const GroupColumns& w, int32_t x_sum, float x_scale,
                        __m512 acc) {
  const __m512i shift = _mm512_mullo_epi32(w.zero, _mm512_set1_epi32(x_sum));
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(sum, shift)),
                         _mm512_mul_ps(_mm512_set1_ps(x_scale), w.scale), acc);
}

}  // namespace
}  // namespace hocket::cpu
