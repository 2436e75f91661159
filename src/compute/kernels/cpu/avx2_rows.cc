// Row bodies on two 256-bit registers at a time: lanes 0-7 and lanes 8-15.
#include <immintrin.h>

#include "compute/kernels/cpu/delta_rows.inl.h"

namespace hocket::cpu {
namespace {

struct Mask {
  __m256 lo, hi;
};

// Sets all bits of those lanes of [begin, begin + 8) whose number is below n.
__m256i lanes_below(int n, int begin) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n - begin), lane);
}

struct Lanes {
  __m256 lo, hi;
  static Lanes all(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
  static Lanes all_bits(uint32_t u) {
    const __m256i i = _mm256_set1_epi32(static_cast<int>(u));
    return of(i, i);
  }
  static Lanes of(__m256i l, __m256i h) { return {_mm256_castsi256_ps(l), _mm256_castsi256_ps(h)}; }
  __m256i lo_bits() const { return _mm256_castps_si256(lo); }
  __m256i hi_bits() const { return _mm256_castps_si256(hi); }

  static Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static Lanes load(const float* p, int n, float fill) {
    const Lanes v = {_mm256_maskload_ps(p, lanes_below(n, 0)),
                     _mm256_maskload_ps(p + 8, lanes_below(n, 8))};
    return v.keep(n, fill);
  }
  static Lanes load(const Bf16* p) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Lanes load(const Bf16* p, int n, float fill) {
    alignas(32) Bf16 part[16] = {};
    __builtin_memcpy(part, p, n * sizeof(Bf16));
    return load(part).keep(n, fill);
  }
  static Lanes widen(__m256i h) {
    const __m256i l32 = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(h));
    const __m256i h32 = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(h, 1));
    return of(_mm256_slli_epi32(l32, 16), _mm256_slli_epi32(h32, 16));
  }
  static Lanes load_doubled(const float* p, int n) {
    const __m256 x = _mm256_maskload_ps(p, lanes_below((n + 1) / 2, 0));
    return {_mm256_permutevar8x32_ps(x, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)),
            _mm256_permutevar8x32_ps(x, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7))};
  }
  void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  void store(float* p, int n) const {
    _mm256_maskstore_ps(p, lanes_below(n, 0), lo);
    _mm256_maskstore_ps(p + 8, lanes_below(n, 8), hi);
  }
  void store(Bf16* p) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), upper_halves()); }
  void store(Bf16* p, int n) const {
    alignas(32) Bf16 part[16];
    store(part);
    __builtin_memcpy(p, part, n * sizeof(Bf16));
  }
  __m256i upper_halves() const {
    const __m256i mixed =
        _mm256_packus_epi32(_mm256_srli_epi32(lo_bits(), 16), _mm256_srli_epi32(hi_bits(), 16));
    return _mm256_permute4x64_epi64(mixed, 0b11011000);
  }

  __m128i bytes() const {
    const __m256i packed = _mm256_packs_epi32(lo_bits(), hi_bits());  // 0-3 8-11 | 4-7 12-15
    const __m256i sorted = _mm256_permute4x64_epi64(packed, 0b11011000);
    return _mm_packs_epi16(_mm256_castsi256_si128(sorted), _mm256_extracti128_si256(sorted, 1));
  }
  static Lanes load_bytes(const int8_t* p) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return of(_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)));
  }
  static Lanes load_bytes(const int8_t* p, int n) {
    alignas(16) int8_t part[16] = {};
    __builtin_memcpy(part, p, n);
    return load_bytes(part);
  }
  void store_bytes(int8_t* p) const { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes()); }
  void store_bytes(int8_t* p, int n) const {
    alignas(16) int8_t part[16];
    store_bytes(part);
    __builtin_memcpy(p, part, n);
  }

  Lanes keep(int n, float fill) const {
    const __m256 f = _mm256_set1_ps(fill);
    return {_mm256_blendv_ps(f, lo, _mm256_castsi256_ps(lanes_below(n, 0))),
            _mm256_blendv_ps(f, hi, _mm256_castsi256_ps(lanes_below(n, 8)))};
  }
  float first() const { return _mm256_cvtss_f32(lo); }
  int first_equal(Lanes b) const {
    const Mask m = *this == b;
    const int equal = _mm256_movemask_ps(m.lo) | _mm256_movemask_ps(m.hi) << 8;
    return equal == 0 ? 16 : __builtin_ctz(equal);
  }
  float sum() const {
    const __m256 a = _mm256_add_ps(lo, hi);
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
  }
  float largest() const {
    const __m256 a = _mm256_max_ps(lo, hi);
    const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
  }

  float largest_bits() const {
    const __m256i a = _mm256_max_epi32(lo_bits(), hi_bits());
    __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epi32(b, _mm_unpackhi_epi64(b, b));
    b = _mm_max_epi32(b, _mm_srli_epi64(b, 32));
    return _mm_cvtss_f32(_mm_castsi128_ps(b));
  }
  int32_t sum_bits() const {
    const __m256i a = _mm256_add_epi32(lo_bits(), hi_bits());
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_add_epi32(b, _mm_unpackhi_epi64(b, b));
    b = _mm_add_epi32(b, _mm_srli_epi64(b, 32));
    return _mm_cvtsi128_si32(b);
  }

  friend Lanes operator+(Lanes a, Lanes b) {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  }
  friend Lanes operator-(Lanes a, Lanes b) {
    return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
  }
  friend Lanes operator*(Lanes a, Lanes b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  }
  friend Lanes operator/(Lanes a, Lanes b) {
    return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
  }
  friend Mask operator<(Lanes a, Lanes b) {
    return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
  }
  friend Mask operator==(Lanes a, Lanes b) {
    return {_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ)};
  }
  friend Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  friend Lanes fma_sub_add(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmaddsub_ps(a.lo, b.lo, c.lo), _mm256_fmaddsub_ps(a.hi, b.hi, c.hi)};
  }
  friend Lanes swap_neighbours(Lanes a) {
    return {_mm256_permute_ps(a.lo, 0b10110001), _mm256_permute_ps(a.hi, 0b10110001)};
  }
  friend Lanes max_bits(Lanes a, Lanes b) {
    return of(_mm256_max_epi32(a.lo_bits(), b.lo_bits()),
              _mm256_max_epi32(a.hi_bits(), b.hi_bits()));
  }
  friend Lanes max(Lanes a, Lanes b) {
    return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
  }
  friend Lanes sqrt(Lanes a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
  friend Lanes select(Mask m, Lanes a, Lanes b) {
    return {_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
  }
  friend Lanes add_bits(Lanes a, Lanes b) {
    return of(_mm256_add_epi32(a.lo_bits(), b.lo_bits()),
              _mm256_add_epi32(a.hi_bits(), b.hi_bits()));
  }
  friend Lanes and_bits(Lanes a, Lanes b) {
    return {_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)};
  }
  friend Lanes or_bits(Lanes a, Lanes b) {
    return {_mm256_or_ps(a.lo, b.lo), _mm256_or_ps(a.hi, b.hi)};
  }
  friend Lanes xor_bits(Lanes a, Lanes b) {
    return {_mm256_xor_ps(a.lo, b.lo), _mm256_xor_ps(a.hi, b.hi)};
  }
  template <int n>
  friend Lanes shift_left(Lanes a) {
    return of(_mm256_slli_epi32(a.lo_bits(), n), _mm256_slli_epi32(a.hi_bits(), n));
  }
  template <int n>
  friend Lanes shift_right(Lanes a) {
    return of(_mm256_srli_epi32(a.lo_bits(), n), _mm256_srli_epi32(a.hi_bits(), n));
  }
  friend Lanes from_int(Lanes a) {
    return {_mm256_cvtepi32_ps(a.lo_bits()), _mm256_cvtepi32_ps(a.hi_bits())};
  }
};

}  // namespace

constinit const RowKernels kAvx2Rows = Rows<Lanes>::table<DeltaRows<Lanes>>(Isa::avx2);

}  // namespace hocket::cpu
