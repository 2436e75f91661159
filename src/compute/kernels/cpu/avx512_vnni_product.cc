// int8 and int4 weights times int8 rows by VNNI: unsigned weights, signed rows, four k at a time.
// The two halves of a k-block have sums of their own: groups of 32 end with each.
#include <immintrin.h>

#include <cstring>

#include "compute/kernels/cpu/avx512_group.h"
#include "compute/kernels/cpu/row_counts.h"
#include "compute/kernels/product_bodies.h"

namespace hocket::cpu {
namespace {

constexpr int kHalfQuads = kIntegerBlockK / 8;
// Bytes ahead that weights are fetched; the best of 1 to 8 KiB on Zen 4.
template <int R>
constexpr int kAhead = R <= 4 ? 2048 : 4096;

inline __m512i four_of(const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, sizeof four);
  return _mm512_set1_epi32(four);
}

// What one panel multiplies.
struct Panel {
  const int8_t* x;  // [k_blocks][R][64]
  const float* x_scales;
  const int32_t* x_sums;
  const std::byte* w;
  const float* scales;
  const uint8_t* zeros;
  float* y;
};

// One block: sums of each half. Lines are read in the order they stand in.
template <int R, WeightFormat kFormat>
inline void multiply_block(const int8_t* x, const std::byte* tile, __m512i (&sums)[2][R]) {
  constexpr int kHalves = kFormat == WeightFormat::int8 ? 1 : 2;  // that share a line
#pragma GCC unroll 16
  for (int q = 0; q < 2 * kHalfQuads / kHalves; ++q) {
    _mm_prefetch(reinterpret_cast<const char*>(tile + kAhead<R> + q * 64), _MM_HINT_T1);
    const __m512i line = _mm512_loadu_si512(tile + q * 64);
#pragma GCC unroll 2
    for (int i = 0; i < kHalves; ++i) {
      const int half = kHalves == 1 ? q / kHalfQuads : i;
      const __m512i shifted = i == 0 ? line : _mm512_srli_epi16(line, 4);
      const __m512i w = kHalves == 1 ? line : _mm512_and_si512(shifted, _mm512_set1_epi8(15));
      const int8_t* a = x + half * kIntegerBlockK / 2 + q % kHalfQuads * 4;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
        sums[half][r] = _mm512_dpbusd_epi32(sums[half][r], w, four_of(a + r * kIntegerBlockK));
    }
  }
}

template <int R>
inline void end_group(const Panel& p, int groups, int group, const __m512i (&sums)[R],
                      __m512 (&acc)[R]) {
  const GroupColumns columns = load_group(p.zeros + group * kPanelN, p.scales + group * kPanelN);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const int64_t at = int64_t{r} * groups + group;
    acc[r] = add_group(sums[r], columns, p.x_sums[at], p.x_scales[at], acc[r]);
  }
}

template <int R>
inline void clear(__m512i (&sums)[2][R]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[0][r] = sums[1][r] = _mm512_setzero_si512();
}

template <int R, WeightFormat kFormat>
void multiply(const ScaledProduct<int8_t>& all, const Panel& p) {
  __m512i sums[2][R];
  __m512 acc[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  clear(sums);
  int group = 0, next_end = all.group_blocks;
  for (int block = 0; block < all.k_blocks; ++block) {
    multiply_block<R, kFormat>(p.x + int64_t{block} * R * kIntegerBlockK,
                               p.w + int64_t{block} * tile_bytes(kFormat), sums);
    if (all.group_blocks == 0) {
      end_group(p, all.groups, group++, sums[0], acc);
      if (group < all.groups) end_group(p, all.groups, group++, sums[1], acc);
    } else if (block + 1 == next_end || block + 1 == all.k_blocks) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sums[0][r] = _mm512_add_epi32(sums[0][r], sums[1][r]);
      end_group(p, all.groups, group++, sums[0], acc);
      next_end += all.group_blocks;
    } else {
      continue;
    }
    clear(sums);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(p.y + r * all.y_stride, acc[r]);
}

// All panels for R rows.
template <int R, WeightFormat kFormat>
void multiply_rows(const ScaledProduct<int8_t>& p, int row) {
  int8_t* x = static_cast<int8_t*>(p.scratch);
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r)
      std::memcpy(x + (block * R + r) * kIntegerBlockK,
                  p.x + (row + r) * p.x_stride + block * kIntegerBlockK, kIntegerBlockK);
  const int64_t x_at = int64_t{row} * p.groups;
  for (int panel = 0; panel < p.panels; ++panel) {
    const int64_t at = int64_t{panel} * p.groups * kPanelN;
    multiply<R, kFormat>(
        p, {x, p.x_scales + x_at, p.x_sums + x_at, p.w + panel * p.panel_bytes, p.scales + at,
            p.zeros + at, p.y + row * p.y_stride + panel * kPanelN});
  }
}

template <WeightFormat kFormat>
void product(const ScaledProduct<int8_t>& p) {
  for_each_rows<kVectorRows>(p.rows,
                             [&](auto count, int row) { multiply_rows<count(), kFormat>(p, row); });
}

}  // namespace

void avx512_vnni_product_int8(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::int8>(p);
}
void avx512_vnni_product_int4(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::int4>(p);
}

}  // namespace hocket::cpu
