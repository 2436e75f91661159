// Weights with scales of 16 numbers times int8 rows by VNNI, one panel at a time. Stored numbers
// are unsigned: they have an offset, which is taken away from the sums of 16. These sums times
// their integer scales add up in fp32 without rounding, since they stay below 2^24.
// g++ 12 takes the unused operands of its own intrinsics for uninitialized.
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include <cstring>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx512_group.h"
#include "compute/kernels/cpu/prefetch.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {

constexpr int kSums = 4;  // a block has that many sums of 16 numbers
constexpr int kFar = 16384, kNear = 2048, kGroupsAhead = 8;  // as in avx512_vnni_product_of_32.cc
constexpr uint8_t kTableOffset = 128;
template <WeightFormat kFormat>
constexpr int kOffset = kFormat == WeightFormat::q6_k ? kQ6kOffset : kTableOffset;

// Some prepared rows: x [k_blocks][R][64], starts [k_blocks][R][4].
struct Rows {
  int8_t* x;
  int32_t* starts;  // sums of 16 numbers start here: -offset times the sum of x
};

// Writes the starts of one block of one row.
template <WeightFormat kFormat>
inline void put_starts(const int8_t* x, int32_t* to) {
  const __m512i ones = _mm512_set1_epi8(1);
  __m512i sums = _mm512_dpbusd_epi32(__m512i{}, ones, _mm512_loadu_si512(x));
  sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_CDAB));
  sums = _mm512_add_epi32(sums, _mm512_shuffle_epi32(sums, _MM_PERM_BADC));
  sums = _mm512_mullo_epi32(sums, _mm512_set1_epi32(-kOffset<kFormat>));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_castsi512_si128(_mm512_maskz_compress_epi32(0x1111, sums)));
}

// The operands of one panel.
struct Panel {
  const float* x_scales;
  int groups;  // the number of groups of a row
  const std::byte* w;
  const std::byte* scales;
  float unit;
  float* y;
};

// Adds a group of a panel, which is half a block: acc = fma(float(sum), x_scale * (d * unit), acc).
// The half is known at compile time, so that the shifts of a quad are constants.
template <int kHalf, int R, WeightFormat kFormat>
inline void add_group(const Panel& p, const Rows& rows, int group, __m512i table,
                      __m512 (&acc)[R]) {
  constexpr int kLines = tile_bytes(kFormat) / kNibbleLineBytes / 2, kQuads = 8;  // a group's
  const int block = group / 2;
  const std::byte* const tile = p.w + int64_t{block} * tile_bytes(kFormat);
  prefetch_l1(p.scales + (group + kGroupsAhead) * int64_t{sizeof(ScalesOf16)} / kScaleBlockGroups);
  const ScalesOf16Group by = load_scales_of_16(p.scales, group, p.unit);
  const int8_t* const x = rows.x + int64_t{block} * R * kIntegerBlockK;
  const int32_t* const starts = rows.starts + int64_t{block} * R * kSums;
  __m512 totals[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) totals[r] = _mm512_setzero_ps();
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const int at = kHalf * 2 + i;
    __m512i sums[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[r] = _mm512_set1_epi32(starts[r * kSums + at]);
#pragma GCC unroll 4
    for (int quad = at * 4; quad < at * 4 + 4; ++quad) {
      for (int line = quad * kLines / kQuads; line < (quad + 1) * kLines / kQuads; ++line) {
        prefetch_l2(tile + kFar + line * kNibbleLineBytes);
        prefetch_l1(tile + kNear + line * kNibbleLineBytes);
      }
      const __m512i w = numbers_of_quad<kFormat>(tile, quad, table);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
        sums[r] = _mm512_dpbusd_epi32(sums[r], w, row_quad(x + r * kIntegerBlockK + quad * 4));
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      totals[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r]), by.scales[i], totals[r]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const __m512 x_scale = _mm512_set1_ps(p.x_scales[int64_t{r} * p.groups + group]);
    acc[r] = _mm512_fmadd_ps(totals[r], _mm512_mul_ps(x_scale, by.factor), acc[r]);
  }
}

template <int R, WeightFormat kFormat>
void multiply_panel(const ScaledProduct<int8_t>& all, const Panel& p, const Rows& rows) {
  __m512i table = {};
  if constexpr (has_table(kFormat)) table = load_table(*all.table, kTableOffset);
  __m512 acc[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  for (int block = 0; block < all.k_blocks; ++block) {
    add_group<0, R, kFormat>(p, rows, 2 * block, table, acc);
    if (2 * block + 1 < all.groups) add_group<1, R, kFormat>(p, rows, 2 * block + 1, table, acc);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) _mm512_storeu_ps(p.y + r * all.y_stride, acc[r]);
}

// Multiplies all panels with R rows.
template <int R, WeightFormat kFormat>
void multiply_rows(const ScaledProduct<int8_t>& p, int row) {
  Rows rows;
  rows.x = static_cast<int8_t*>(p.scratch);
  rows.starts =
      reinterpret_cast<int32_t*>(rows.x + int64_t{p.k_blocks} * kVectorRows * kIntegerBlockK);
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r) {
      const int64_t at = int64_t{block} * R + r;
      const int8_t* const x = p.x + (row + r) * p.x_stride + int64_t{block} * kIntegerBlockK;
      std::memcpy(rows.x + at * kIntegerBlockK, x, kIntegerBlockK);
      put_starts<kFormat>(x, rows.starts + at * kSums);
    }
  for (int panel = 0; panel < p.panels; ++panel)
    multiply_panel<R, kFormat>(p,
                               {.x_scales = p.x_scales + int64_t{row} * p.groups,
                                .groups = p.groups,
                                .w = p.w + panel * p.panel_bytes,
                                .scales = p.scales + panel * p.panel_scale_bytes,
                                .unit = has_table(kFormat) ? p.table->unit : 1,
                                .y = p.y + row * p.y_stride + panel * kPanelN},
                               rows);
}

template <WeightFormat kFormat>
void product(const ScaledProduct<int8_t>& p) {
  for_each_rows<kVectorRows>(p.rows,
                             [&](auto count, int row) { multiply_rows<count(), kFormat>(p, row); });
}

}  // namespace

void avx512_vnni_product_q6_k(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::q6_k>(p);
}
void avx512_vnni_product_table_of_16(const ScaledProduct<int8_t>& p) {
  product<kTableOf16>(p);
}

}  // namespace hocket::cpu
