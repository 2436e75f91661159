// Weights with scales of 16 numbers times int8 rows without VNNI. VPMADDUBSW multiplies the
// numbers' magnitudes with x, which takes their signs: kQuads quads can be summed in 16 bits,
// because numbers are at most kMaxNumber and 2 * kQuads * kMaxNumber * 127 < 2^15. VPMADDWD
// multiplies these sums with the scale of the 16.
#include <immintrin.h>

#include <cstring>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx2_numbers.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {

constexpr WeightFormat kTableOf16 = WeightFormat::q3_k;  // one body serves all with a table
constexpr int kAheadOf16 = 2048;                         // bytes by which weights are fetched ahead
constexpr int kRowsOf16 = 4;                             // their sums stay in registers
constexpr int kSumQuads = 4;                             // under one scale
template <WeightFormat kFormat>
constexpr int kMaxNumber = kFormat == WeightFormat::q6_k ? 32 : 43;
template <WeightFormat kFormat>
constexpr int kQuads = kFormat == WeightFormat::q6_k ? 4 : 2;
template <WeightFormat kFormat>
constexpr bool kFits = 2 * kQuads<kFormat> * kMaxNumber<kFormat> * 127 < 1 << 15;
static_assert(kFits<WeightFormat::q6_k> && kFits<kTableOf16>);

// The operands of one panel.
struct PanelOf16 {
  const int32_t* x;  // quads: [k_blocks][R][16]
  const float* x_scales;
  const std::byte* w;
  const ScalesOf16* scales;
  __m256i table;
  float unit;
};

// Returns a scale of eight columns in both 16-bit halves of a word.
inline __m256i load_integers(const int8_t* from) {
  const __m256i wide =
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  return _mm256_or_si256(_mm256_slli_epi32(wide, 16),
                         _mm256_and_si256(wide, _mm256_set1_epi32(0xffff)));
}

template <WeightFormat kFormat, bool kHigh>
inline __m256i signed_numbers(const PanelOf16& p, const std::byte* tile, int quad, int h) {
  const __m256i stored = numbers_of_quad<kFormat, kHigh>(tile, quad, h);
  if constexpr (kFormat == WeightFormat::q6_k)
    return _mm256_sub_epi8(stored, _mm256_set1_epi8(kQ6kOffset));
  return _mm256_shuffle_epi8(p.table, stored);
}

// 16 numbers of a group: the quads of x and of the tile from `first` on.
struct SixteenNumbers {
  const int32_t* x;
  const std::byte* tile;
  int first;
  const int8_t* scales;
};

// totals += scale * (x . w) for 16 numbers by 16 columns of R rows.
template <WeightFormat kFormat, bool kHigh, int R>
inline void add_sums(const PanelOf16& p, const SixteenNumbers& numbers, __m256i (&totals)[R][2]) {
  const auto [x, tile, first, scales] = numbers;
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m256i scale = load_integers(scales + h * kLanes);
#pragma GCC unroll 2
    for (int begin = first; begin < first + kSumQuads; begin += kQuads<kFormat>) {
      __m256i words[R] = {};
#pragma GCC unroll 4
      for (int quad = begin; quad < begin + kQuads<kFormat>; ++quad) {
        const __m256i w = signed_numbers<kFormat, kHigh>(p, tile, quad, h);
        const __m256i magnitude = _mm256_abs_epi8(w);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          const __m256i a =
              _mm256_set1_epi32(x[r * 4 * kSumQuads + (kHigh ? 2 * kSumQuads : 0) + quad]);
          words[r] =
              _mm256_add_epi16(words[r], _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(a, w)));
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r)
        totals[r][h] = _mm256_add_epi32(totals[r][h], _mm256_madd_epi16(words[r], scale));
    }
  }
}

// acc = fma(float(sum), x_scale * (d * unit), acc)
template <WeightFormat kFormat, bool kHigh, int R>
inline void add_group_of_16(const ScaledProduct<int8_t>& all, const PanelOf16& p, int group,
                            __m256 (&acc)[R][2]) {
  const int block = group / 2;
  const std::byte* const tile = p.w + int64_t{block} * tile_bytes(kFormat);
  constexpr int kHalfTile = tile_bytes(kFormat) / 2;
  for (int i = 0; i < kHalfTile; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(tile + kAheadOf16 + (kHigh ? kHalfTile : 0) + i),
                 _MM_HINT_T1);
  const int32_t* const x = p.x + int64_t{block} * R * 4 * kSumQuads;
  const ScalesOf16& by = p.scales[group / kScaleBlockGroups];
  const int at = group % kScaleBlockGroups * 2;
  __m256i totals[R][2] = {};
  add_sums<kFormat, kHigh>(p, {x, tile, 0, by.scales[at]}, totals);
  add_sums<kFormat, kHigh>(p, {x, tile, kSumQuads, by.scales[at + 1]}, totals);
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const __m256 factor = _mm256_mul_ps(load_f16(by.d + h * kLanes), _mm256_set1_ps(p.unit));
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256 x_scale = _mm256_set1_ps(p.x_scales[int64_t{r} * all.groups + group]);
      acc[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(totals[r][h]), _mm256_mul_ps(x_scale, factor),
                                  acc[r][h]);
    }
  }
}

// Multiplies all panels with R rows.
template <int R, WeightFormat kFormat>
void multiply_rows_of_16(const ScaledProduct<int8_t>& all, int row) {
  auto* const x = static_cast<int32_t*>(all.scratch);
  for (int block = 0; block < all.k_blocks; ++block)
    for (int r = 0; r < R; ++r)
      std::memcpy(x + (int64_t{block} * R + r) * 4 * kSumQuads,
                  all.x + (row + r) * all.x_stride + int64_t{block} * kIntegerBlockK,
                  kIntegerBlockK);
  PanelOf16 p = {.x = x,
                 .x_scales = all.x_scales + int64_t{row} * all.groups,
                 .w = all.w,
                 .scales = nullptr,
                 .table = {},
                 .unit = 1};
  if constexpr (has_table(kFormat)) {
    p.table = _mm256_broadcastsi128_si256(
        _mm_load_si128(reinterpret_cast<const __m128i*>(all.table->numbers)));
    p.unit = all.table->unit;
  }
  for (int panel = 0; panel < all.panels; ++panel, p.w += all.panel_bytes) {
    p.scales = reinterpret_cast<const ScalesOf16*>(all.scales + panel * all.panel_scale_bytes);
    __m256 acc[R][2] = {};
    for (int group = 0; group < all.groups; ++group) {
      add_group_of_16<kFormat, false>(all, p, group, acc);
      if (++group < all.groups) add_group_of_16<kFormat, true>(all, p, group, acc);
    }
    float* const y = all.y + row * all.y_stride + panel * kPanelN;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      _mm256_storeu_ps(y + r * all.y_stride, acc[r][0]);
      _mm256_storeu_ps(y + r * all.y_stride + kLanes, acc[r][1]);
    }
  }
}

template <WeightFormat kFormat>
void product_of_16(const ScaledProduct<int8_t>& p) {
  for_each_equal_block<kRowsOf16>(
      p.rows, [&](auto count, int row) { multiply_rows_of_16<count(), kFormat>(p, row); });
}

}  // namespace

void avx2_product_q6_k(const ScaledProduct<int8_t>& p) {
  product_of_16<WeightFormat::q6_k>(p);
}
void avx2_product_table_of_16(const ScaledProduct<int8_t>& p) {
  product_of_16<kTableOf16>(p);
}

}  // namespace hocket::cpu
