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
// Bytes ahead that weights are fetched.
template <int R>
constexpr int kAhead = R == 1 ? 2048 : 4096;

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

// Four k of sixteen columns for all rows: sums += x . w
template <int R>
inline void add_quad(const int8_t* x, __m512i w, __m512i (&sums)[R]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
    sums[r] = _mm512_dpbusd_epi32(sums[r], w, four_of(x + r * kIntegerBlockK));
}

// One block: sums of each half. Lines are read in the order they stand in.
template <int R, WeightFormat kFormat>
inline void multiply_block(const int8_t* x, const std::byte* tile, __m512i (&low)[R],
                           __m512i (&high)[R]) {
#pragma GCC unroll 16
  for (int q = 0; q < tile_bytes(kFormat) / 64; ++q) {
    _mm_prefetch(reinterpret_cast<const char*>(tile + kAhead<R> + q * 64), _MM_HINT_T1);
    const __m512i line = _mm512_loadu_si512(tile + q * 64);
    if constexpr (kFormat == WeightFormat::int8) {
      add_quad(x + q * 4, line, q < kHalfQuads ? low : high);
    } else {
      const __m512i four_bits = _mm512_set1_epi8(15);
      add_quad(x + q * 4, _mm512_and_si512(line, four_bits), low);
      add_quad(x + kIntegerBlockK / 2 + q * 4,
               _mm512_and_si512(_mm512_srli_epi16(line, 4), four_bits), high);
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
inline void clear(__m512i (&sums)[R]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r] = _mm512_setzero_si512();
}

template <int R, WeightFormat kFormat>
void multiply(const ScaledProduct<int8_t>& all, const Panel& p) {
  __m512i low[R], high[R];
  __m512 acc[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  clear(low);
  clear(high);
  int group = 0, next_end = all.group_blocks;
  for (int block = 0; block < all.k_blocks; ++block) {
    multiply_block<R, kFormat>(p.x + int64_t{block} * R * kIntegerBlockK,
                               p.w + int64_t{block} * tile_bytes(kFormat), low, high);
    if (all.group_blocks == 0) {
      end_group(p, all.groups, group++, low, acc);
      if (group < all.groups) end_group(p, all.groups, group++, high, acc);
    } else if (block + 1 == next_end || block + 1 == all.k_blocks) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) low[r] = _mm512_add_epi32(low[r], high[r]);
      end_group(p, all.groups, group++, low, acc);
      next_end += all.group_blocks;
    } else {
      continue;
    }
    clear(low);
    clear(high);
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
