// Sixteen fp32 lanes in a 512-bit register: the type V (rows.inl.h, math.h) of the row bodies and
// of attention.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "compute/tensor/bf16.h"

namespace hocket::cpu {
namespace {  // compiled for several instruction sets: nothing may be shared between units

inline __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1u << n) - 1);
}

struct Lanes {
  __m512 x;
  static Lanes all(float v) { return {_mm512_set1_ps(v)}; }
  static Lanes all_bits(uint32_t u) { return of(_mm512_set1_epi32(static_cast<int>(u))); }
  static Lanes of(__m512i i) { return {_mm512_castsi512_ps(i)}; }
  __m512i bits() const { return _mm512_castps_si512(x); }

  static Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Lanes load(const float* p, int n, float fill) {
    return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), first_lanes(n), p)};
  }
  static Lanes load(const Bf16* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Lanes load(const Bf16* p, int n, float fill) {
    return widen(_mm256_maskz_loadu_epi16(first_lanes(n), p)).keep(n, fill);
  }
  static Lanes widen(__m256i h) { return of(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)); }
  static Lanes load_doubled(const float* p, int n) {
    const __m256 x = _mm256_maskz_loadu_ps(static_cast<__mmask8>((1u << (n + 1) / 2) - 1), p);
    const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return {_mm512_permutexvar_ps(twice, _mm512_castps256_ps512(x))};
  }
  void store(float* p) const { _mm512_storeu_ps(p, x); }
  void store(float* p, int n) const { _mm512_mask_storeu_ps(p, first_lanes(n), x); }
  void store(Bf16* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), upper_halves()); }
  void store(Bf16* p, int n) const { _mm256_mask_storeu_epi16(p, first_lanes(n), upper_halves()); }
  __m256i upper_halves() const { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits(), 16)); }

  static Lanes load_bytes(const int8_t* p) {
    return of(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static Lanes load_bytes(const int8_t* p, int n) {
    return of(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first_lanes(n), p)));
  }
  void store_bytes(int8_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(bits()));
  }
  void store_bytes(int8_t* p, int n) const {
    _mm_mask_storeu_epi8(p, first_lanes(n), _mm512_cvtepi32_epi8(bits()));
  }

  Lanes keep(int n, float fill) const {
    return {_mm512_mask_blend_ps(first_lanes(n), _mm512_set1_ps(fill), x)};
  }
  float first() const { return _mm512_cvtss_f32(x); }
  int first_equal(Lanes b) const {
    const unsigned equal = _mm512_cmp_ps_mask(x, b.x, _CMP_EQ_OQ);
    return equal == 0 ? 16 : __builtin_ctz(equal);
  }
  float sum() const {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  float largest() const {
    const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }

  float largest_bits() const { return __builtin_bit_cast(float, _mm512_reduce_max_epi32(bits())); }
  int32_t sum_bits() const { return _mm512_reduce_add_epi32(bits()); }

  friend Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.x, b.x)}; }
  friend Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.x, b.x)}; }
  friend Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.x, b.x)}; }
  friend Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.x, b.x)}; }
  friend __mmask16 operator<(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a.x, b.x, _CMP_LT_OQ); }
  friend __mmask16 operator==(Lanes a, Lanes b) { return _mm512_cmp_ps_mask(a.x, b.x, _CMP_EQ_OQ); }
  friend Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.x, b.x, c.x)}; }
  friend Lanes fma_sub_add(Lanes a, Lanes b, Lanes c) {
    return {_mm512_fmaddsub_ps(a.x, b.x, c.x)};
  }
  friend Lanes swap_neighbours(Lanes a) { return {_mm512_permute_ps(a.x, 0b10110001)}; }
  friend Lanes max_bits(Lanes a, Lanes b) { return of(_mm512_max_epi32(a.bits(), b.bits())); }
  friend Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.x, b.x)}; }
  friend Lanes sqrt(Lanes a) { return {_mm512_sqrt_ps(a.x)}; }
  friend Lanes select(__mmask16 mask, Lanes a, Lanes b) {
    return {_mm512_mask_blend_ps(mask, b.x, a.x)};
  }
  friend Lanes add_bits(Lanes a, Lanes b) { return of(_mm512_add_epi32(a.bits(), b.bits())); }
  friend Lanes and_bits(Lanes a, Lanes b) { return of(_mm512_and_si512(a.bits(), b.bits())); }
  friend Lanes or_bits(Lanes a, Lanes b) { return of(_mm512_or_si512(a.bits(), b.bits())); }
  friend Lanes xor_bits(Lanes a, Lanes b) { return of(_mm512_xor_si512(a.bits(), b.bits())); }
  template <int n>
  friend Lanes shift_left(Lanes a) {
    return of(_mm512_slli_epi32(a.bits(), n));
  }
  template <int n>
  friend Lanes shift_right(Lanes a) {
    return of(_mm512_srli_epi32(a.bits(), n));
  }
  friend Lanes from_int(Lanes a) { return {_mm512_cvtepi32_ps(a.bits())}; }
};

// Rounds to the nearest bf16 as rows.inl.h does, for numbers whose NaN has zeros in its low half:
// bits of bf16 or of the processor. Rounding keeps such a NaN, so it needs no case of its own.
inline Lanes rounded_to_bf16(Lanes x) {
  const Lanes odd = and_bits(shift_right<16>(x), Lanes::all_bits(1));
  return and_bits(add_bits(add_bits(x, Lanes::all_bits(0x7fffu)), odd),
                  Lanes::all_bits(0xffff0000u));
}

}  // namespace
}  // namespace hocket::cpu
