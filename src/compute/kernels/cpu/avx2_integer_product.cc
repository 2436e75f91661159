// Integer weights times int8 rows without VNNI. A register has eight columns; four k are a quad,
// two quads of int4 share a byte.
//   int8   Weights and rows are widened to 16 bits. VPMADDUBSW multiplies bytes and would saturate,
//          because 2 * 255 * 127 > 2^15.
//          q8_0 is the same, and so are formats with a table, with 128 added to their numbers.
//   int4, q4_k   VPMADDUBSW multiplies bytes. Eight quads can be summed in 16 bits, because
//          8 * 2 * 15 * 127 < 2^15.
//   q5_k   The same with four quads, because 4 * 2 * 31 * 127 < 2^15.
#include <immintrin.h>

#include <type_traits>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx2_numbers.h"
#include "compute/kernels/cpu/avx2_registers.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {

constexpr int kHalfK = kIntegerBlockK / 2;
constexpr int kHalfQuads = kHalfK / 4;
constexpr int kIntegerAhead = 2048;      // bytes by which weights are fetched ahead
constexpr int kIntegerRegisterRows = 4;  // rows of x whose sums stay in registers
// One body serves all formats with a table.
constexpr WeightFormat kTable = WeightFormat::iq4;
constexpr uint8_t kOffset = 128;
// q8_0, and numbers from a table, have kOffset added, so that they are unsigned.
template <WeightFormat kFormat>
constexpr bool kHasOffset = kFormat == WeightFormat::q8_0 || kFormat == kTable;
template <WeightFormat kFormat>
constexpr bool kHasZeros = kFormat == WeightFormat::int8 || kFormat == WeightFormat::int4;
template <WeightFormat kFormat>
constexpr bool kIsWide = kFormat == WeightFormat::int8 || kHasOffset<kFormat>;
// Number of 32-bit words that hold half a block of one row. In wide formats these are 16-bit
// numbers: k 0 and 2 of each quad, then k 1 and 3; in others the quads. Each word is copied to all
// columns.
template <WeightFormat kFormat>
constexpr int kHalfWords = kIsWide<kFormat> ? 2 * kHalfQuads : kHalfQuads;

// Writes the words of half a block of one row.
template <WeightFormat kFormat>
inline void prepare_half(const int8_t* x, int32_t* to) {
  const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  auto* const words = reinterpret_cast<__m256i*>(to);
  if constexpr (!kIsWide<kFormat>) {
    _mm256_storeu_si256(words, bytes);
  } else {
    _mm256_storeu_si256(words, _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8));
    _mm256_storeu_si256(words + 1, _mm256_srai_epi16(bytes, 8));
  }
}

template <int R>
inline void clear(__m256i (&sums)[R][2]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
}

// sums += x . w for R rows by 16 columns of half a block. numbers_of turns loaded bytes into
// numbers 0..255; x [R][2][8 quads].
template <int R, class NumbersOf>
inline void add_wide_half(const int32_t* x, const std::byte* w, NumbersOf numbers_of,
                          __m256i (&sums)[R][2]) {
#pragma GCC unroll 2
  for (int quad = 0; quad < kHalfQuads; ++quad, ++x, w += 4 * kPanelN) {
    __m256i even[2], odd[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256i bytes = numbers_of(load_words(w + h * 4 * kLanes));
      even[h] = _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
      odd[h] = _mm256_srli_epi16(bytes, 8);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const int32_t* words = x + r * kHalfWords<WeightFormat::int8>;
      const __m256i a = _mm256_set1_epi32(words[0]), b = _mm256_set1_epi32(words[kHalfQuads]);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        sums[r][h] = _mm256_add_epi32(sums[r][h], _mm256_add_epi32(_mm256_madd_epi16(even[h], a),
                                                                   _mm256_madd_epi16(odd[h], b)));
        keep_in_register(sums[r][h]);
      }
    }
  }
}

// The same for int4, q4_k and q5_k, quads from kQuad on; kHigh: numbers in the high halves of
// bytes. x [R][8 quads].
template <WeightFormat kFormat, bool kHigh, int kQuad = 0, int R>
inline void add_half_int4(const int32_t* x, const std::byte* tile, __m256i (&sums)[R][2]) {
  constexpr int kEnd = kFormat == WeightFormat::q5_k ? kQuad + 4 : kHalfQuads;
  __m256i words[R][2];  // sums of even, and of odd pairs of k, in 16 bits
  clear(words);
#pragma GCC unroll 4
  for (int quad = kQuad; quad < kEnd; ++quad) {
    __m256i numbers[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) numbers[h] = numbers_of_quad<kFormat, kHigh>(tile, quad, h);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m256i a = _mm256_set1_epi32(x[r * kHalfWords<WeightFormat::int4> + quad]);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        words[r][h] = _mm256_add_epi16(words[r][h], _mm256_maddubs_epi16(numbers[h], a));
        keep_in_register(words[r][h]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h)
      sums[r][h] =
          _mm256_add_epi32(sums[r][h], _mm256_madd_epi16(words[r][h], _mm256_set1_epi16(1)));
  if constexpr (kEnd < kHalfQuads) add_half_int4<kFormat, kHigh, kEnd>(x, tile, sums);
}

// Adds the half block number `half` of a panel.
template <int R, WeightFormat kFormat>
inline void add_half(const int32_t* x, const std::byte* panel, int half, __m256i table,
                     __m256i (&sums)[R][2]) {
  const std::byte* tile = panel + int64_t{half / 2} * tile_bytes(kFormat);
  constexpr int kHalfTile = tile_bytes(kFormat) / 2;
  for (int i = 0; i < kHalfTile; i += 64)
    _mm_prefetch(reinterpret_cast<const char*>(tile + kIntegerAhead + half % 2 * kHalfTile + i),
                 _MM_HINT_T1);
  x += int64_t{half} * R * kHalfWords<kFormat>;
  if constexpr (tile_bytes(kFormat) == tile_bytes(WeightFormat::int8)) {
    add_wide_half(x, tile + half % 2 * kHalfTile, [](__m256i bytes) { return bytes; }, sums);
  } else if constexpr (kFormat == kTable) {
    const auto by_table = [&](auto high) {
      return [=](__m256i bytes) { return _mm256_shuffle_epi8(table, nibbles_of<high()>(bytes)); };
    };
    half % 2 == 0 ? add_wide_half(x, tile, by_table(std::false_type()), sums)
                  : add_wide_half(x, tile, by_table(std::true_type()), sums);
  } else {
    half % 2 == 0 ? add_half_int4<kFormat, false>(x, tile, sums)
                  : add_half_int4<kFormat, true>(x, tile, sums);
  }
}

// Loads the scales of eight columns from `at` on.
template <WeightFormat kFormat>
inline __m256 load_scales(const std::byte* scales, int64_t at) {
  scales += at * scale_size(kFormat);
  if constexpr (scale_size(kFormat) == 2)
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  return _mm256_loadu_ps(reinterpret_cast<const float*>(scales));
}

// Loads the scales or minima of eight columns of one group of q4_k or q5_k.
inline __m256 load_block_scales(const uint16_t* halves, const uint8_t* integers) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(integers));
  return _mm256_mul_ps(load_f16(halves), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
}

// The factors of one group: those of a panel's columns, and those of the rows, `groups` apart.
struct GroupFactors {
  const std::byte* scales;
  const uint8_t* zeros;
  const float* x_scales;
  const int32_t* x_sums;
  int64_t groups;
  float unit;  // the table's
};

// Starts the sums of a group at -zero * x_sum. q4_k and q5_k have no zeros; q8_0 and tables have
// kOffset as zero of all columns.
template <WeightFormat kFormat, int R>
inline void begin_group(const GroupFactors& f, __m256i (&sums)[R][2]) {
  if constexpr (has_minima(kFormat)) return clear(sums);
  if constexpr (kHasOffset<kFormat>) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      sums[r][0] = sums[r][1] = _mm256_set1_epi32(-kOffset * f.x_sums[r * f.groups]);
    return;
  }
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const auto* zeros = reinterpret_cast<const __m128i*>(f.zeros + h * kLanes);
    const __m256i negative =
        _mm256_sub_epi32(_mm256_setzero_si256(), _mm256_cvtepu8_epi32(_mm_loadl_epi64(zeros)));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      sums[r][h] = _mm256_mullo_epi32(negative, _mm256_set1_epi32(f.x_sums[r * f.groups]));
  }
}
// acc = fma(float(sum), x_scale * scale, acc), then acc = fma(-(x_scale * float(x_sum)), min, acc)
template <int R>
inline void finish_group_with_minima(const GroupFactors& f, const Q4kScales& block, int group,
                                     const __m256i (&sums)[R][2], __m256 (&acc)[R][2]) {
  const int i = group % kScaleBlockGroups;
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    const int first = h * kLanes;
    const __m256 scale = load_block_scales(block.d + first, block.scales[i] + first);
    const __m256 min = load_block_scales(block.dmin + first, block.mins[i] + first);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float x_scale = f.x_scales[r * f.groups];
      const __m256 total = _mm256_set1_ps(x_scale * static_cast<float>(f.x_sums[r * f.groups]));
      const __m256 both = _mm256_mul_ps(_mm256_set1_ps(x_scale), scale);
      acc[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[r][h]), both, acc[r][h]);
      acc[r][h] = _mm256_fnmadd_ps(total, min, acc[r][h]);
    }
  }
}
// acc = fma(float(sum), x_scale * scale, acc)
template <WeightFormat kFormat, int R>
inline void finish_group(const GroupFactors& f, int group, const __m256i (&sums)[R][2],
                         __m256 (&acc)[R][2]) {
#pragma GCC unroll 2
  for (int h = 0; h < 2; ++h) {
    __m256 scale;
    if constexpr (kFormat == kTable) {
      const auto& block = reinterpret_cast<const TableScales*>(f.scales)[group / kScaleBlockGroups];
      const int8_t* const integers = block.scales[group % kScaleBlockGroups] + h * kLanes;
      const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(integers));
      scale = _mm256_mul_ps(load_f16(block.d + h * kLanes), _mm256_set1_ps(f.unit));
      scale = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
    } else {
      scale = load_scales<kFormat>(f.scales, h * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m256 both = _mm256_mul_ps(_mm256_set1_ps(f.x_scales[r * f.groups]), scale);
      acc[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[r][h]), both, acc[r][h]);
    }
  }
}

// Multiplies one panel with R rows, prepared in x.
template <int R, WeightFormat kFormat>
void multiply_panel(const ScaledProduct<int8_t>& p, const int32_t* x, int row, int panel) {
  const int group_halves = p.group_blocks == 0 ? 1 : 2 * p.group_blocks, halves = 2 * p.k_blocks;
  const int64_t at = int64_t{panel} * p.groups * kPanelN, x_at = int64_t{row} * p.groups;
  const std::byte* const scales = p.scales + panel * p.panel_scale_bytes;
  const auto* const blocks = reinterpret_cast<const Q4kScales*>(scales);
  GroupFactors f = {
      scales,   kHasZeros<kFormat> ? p.zeros + at : nullptr, p.x_scales + x_at, p.x_sums + x_at,
      p.groups, kFormat == kTable ? p.table->unit : 1};
  const std::byte* w = p.w + panel * p.panel_bytes;
  __m256i table = {};
  if constexpr (kFormat == kTable) {
    const __m128i numbers = _mm_load_si128(reinterpret_cast<const __m128i*>(p.table->numbers));
    table = _mm256_broadcastsi128_si256(
        _mm_add_epi8(numbers, _mm_set1_epi8(static_cast<char>(kOffset))));
  }
  __m256 acc[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_ps();
  for (int group = 0, half = 0; group < p.groups; ++group) {
    __m256i sums[R][2];
    begin_group<kFormat>(f, sums);
    for (const int end = half + group_halves < halves ? half + group_halves : halves; half < end;
         ++half)
      add_half<R, kFormat>(x, w, half, table, sums);
    if constexpr (has_minima(kFormat)) {
      finish_group_with_minima(f, blocks[group / kScaleBlockGroups], group, sums, acc);
    } else {
      finish_group<kFormat>(f, group, sums, acc);
      if constexpr (kFormat != kTable) f.scales += kPanelN * scale_size(kFormat);
      if constexpr (kHasZeros<kFormat>) f.zeros += kPanelN;
    }
    ++f.x_scales, ++f.x_sums;
  }
  float* y = p.y + row * p.y_stride + panel * kPanelN;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    _mm256_storeu_ps(y + r * p.y_stride, acc[r][0]);
    _mm256_storeu_ps(y + r * p.y_stride + kLanes, acc[r][1]);
  }
}

// Multiplies all panels with R rows.
template <int R, WeightFormat kFormat>
void multiply_rows(const ScaledProduct<int8_t>& p, int row) {
  auto* const x = static_cast<int32_t*>(p.scratch);
  for (int half = 0; half < 2 * p.k_blocks; ++half)
    for (int r = 0; r < R; ++r)
      prepare_half<kFormat>(p.x + (row + r) * p.x_stride + int64_t{half} * kHalfK,
                            x + (int64_t{half} * R + r) * kHalfWords<kFormat>);
  for (int panel = 0; panel < p.panels; ++panel) multiply_panel<R, kFormat>(p, x, row, panel);
}

template <WeightFormat kFormat>
void product(const ScaledProduct<int8_t>& p) {
  for_each_equal_block<kIntegerRegisterRows>(
      p.rows, [&](auto count, int row) { multiply_rows<count(), kFormat>(p, row); });
}

}  // namespace

void avx2_product_int8(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::int8>(p);
}
void avx2_product_int4(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::int4>(p);
}
void avx2_product_q8_0(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::q8_0>(p);
}
void avx2_product_q4_k(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::q4_k>(p);
}
void avx2_product_q5_k(const ScaledProduct<int8_t>& p) {
  product<WeightFormat::q5_k>(p);
}
void avx2_product_table(const ScaledProduct<int8_t>& p) {
  product<kTable>(p);
}

}  // namespace hocket::cpu
