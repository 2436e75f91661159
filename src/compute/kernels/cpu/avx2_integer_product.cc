// int8 and int4 weights times int8 rows without VNNI. Bytes are widened to 16 bits, so that no sum
// of two products saturates. A register has eight columns; a step takes half a k-block.
#include <immintrin.h>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx2_registers.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {

constexpr int kHalfK = kIntegerBlockK / 2;
constexpr int kIntegerAhead = 2048;  // bytes by which weights are fetched ahead

// A quad of k of eight columns, in 16 bits each: numbers 0 and 2, 1 and 3.
struct Quad {
  __m256i even, odd;
};
inline Quad load_weights(__m256i bytes) {
  return {_mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16(bytes, 8)};
}
// The same four numbers of one row, repeated in every column.
inline Quad load_row(const int8_t* x) {
  int32_t quad;
  __builtin_memcpy(&quad, x, sizeof quad);
  const __m256i bytes = _mm256_set1_epi32(quad);
  return {_mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8), _mm256_srai_epi16(bytes, 8)};
}

template <WeightFormat kFormat>
inline __m256i load_bytes(const std::byte* tile, int half, int quad) {
  if constexpr (kFormat == WeightFormat::int8) {
    const std::byte* from = tile + (half * 8 + quad) * 4 * kPanelN;
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  } else {
    const __m256i both =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(tile + quad * 4 * kPanelN));
    return _mm256_and_si256(half == 0 ? both : _mm256_srli_epi16(both, 4), _mm256_set1_epi8(15));
  }
}

// sums += x . w for R rows by 16 columns of half a block.
template <int R, WeightFormat kFormat>
inline void add_half(const int8_t* x, int64_t x_stride, const std::byte* tile, int half,
                     __m256i (&sums)[R][2]) {
#pragma GCC unroll 1
  for (int quad = 0; quad < kHalfK / 4; ++quad) {
    Quad w[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h)
      w[h] = load_weights(load_bytes<kFormat>(tile + h * 4 * kLanes, half, quad));
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Quad a = load_row(x + r * x_stride + quad * 4);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h)
        sums[r][h] =
            _mm256_add_epi32(sums[r][h], _mm256_add_epi32(_mm256_madd_epi16(w[h].even, a.even),
                                                          _mm256_madd_epi16(w[h].odd, a.odd)));
    }
  }
}

// Loads the scales of eight columns from `at` on.
template <WeightFormat kFormat>
inline __m256 load_scales(const std::byte* scales, int64_t at) {
  scales += at * scale_size(kFormat);
  if constexpr (kFormat == WeightFormat::int4)
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  return _mm256_loadu_ps(reinterpret_cast<const float*>(scales));
}

// y = fma(float(sum - zero * x_sum), x_scale * scale, y), from +0 in the first group.
template <int R, WeightFormat kFormat>
inline void add_group(const ScaledProduct<int8_t>& p, int row, int panel, int group,
                      const __m256i (&sums)[R][2]) {
  const int64_t at = (int64_t{panel} * p.groups + group) * kPanelN;
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const auto* zeros = reinterpret_cast<const __m128i*>(p.zeros + at + h * kLanes);
    const __m256i zero = _mm256_cvtepu8_epi32(_mm_loadl_epi64(zeros));
    const __m256 scale = load_scales<kFormat>(p.scales, at + h * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const int64_t x_at = int64_t{row + r} * p.groups + group;
      const __m256i shift = _mm256_mullo_epi32(zero, _mm256_set1_epi32(p.x_sums[x_at]));
      const __m256 sum = _mm256_cvtepi32_ps(_mm256_sub_epi32(sums[r][h], shift));
      const __m256 both = _mm256_mul_ps(_mm256_set1_ps(p.x_scales[x_at]), scale);
      float* y = p.y + (row + r) * p.y_stride + panel * kPanelN + h * kLanes;
      const __m256 acc = group == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(y);
      _mm256_storeu_ps(y, _mm256_fmadd_ps(sum, both, acc));
    }
  }
}

template <int R, WeightFormat kFormat>
void multiply(const ScaledProduct<int8_t>& p, int row, int panel) {
  const int halves = p.group_blocks == 0 ? 1 : 2 * p.group_blocks;
  const std::byte* w = p.w + panel * p.panel_bytes;
  for (int group = 0; group < p.groups; ++group) {
    __m256i sums[R][2];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
    const int all = 2 * p.k_blocks, end = (group + 1) * halves < all ? (group + 1) * halves : all;
    for (int at = group * halves; at < end; ++at) {
      const std::byte* tile = w + int64_t{at / 2} * tile_bytes(kFormat);
      constexpr int kHalfTile = tile_bytes(kFormat) / 2;
      for (int i = 0; i < kHalfTile; i += 64)
        _mm_prefetch(reinterpret_cast<const char*>(tile + kIntegerAhead + at % 2 * kHalfTile + i),
                     _MM_HINT_T1);
      add_half<R, kFormat>(p.x + row * p.x_stride + int64_t{at} * kHalfK, p.x_stride, tile, at % 2,
                           sums);
    }
    add_group<R, kFormat>(p, row, panel, group, sums);
  }
}

template <int R, WeightFormat kFormat>
void multiply_rows(const ScaledProduct<int8_t>& p, int row) {
  for (int panel = 0; panel < p.panels; ++panel) multiply<R, kFormat>(p, row, panel);
}

template <WeightFormat kFormat>
void product(const ScaledProduct<int8_t>& p) {
  for_each_rows<kRegisterRows>(
      p.rows, [&](auto count, int row) { multiply_rows<count(), kFormat>(p, row); });
}

}  // namespace

void avx2_product_int8(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::int8>(p);
}
void avx2_product_int4(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::int4>(p);
}

}  // namespace hocket::cpu
