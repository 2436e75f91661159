// mxfp4, mxfp8 and nvfp4, widened to bf16 tiles: four panels and four k-blocks at a time, which all
// rows then use. For few rows mxfp4 and nvfp4 are widened in registers instead.
#include <immintrin.h>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx2_registers.h"
#include "compute/kernels/cpu/row_counts.h"

namespace hocket::cpu {
namespace {

constexpr int kMxPanels = 4;    // panels widened at once
constexpr int kMxBlocks = 4;    // and their k-blocks
constexpr int kMxRows = 64;     // rows that use them at once
constexpr int kMxAhead = 1024;  // bytes by which weights are fetched ahead
constexpr int kFewMxRows = 4;   // for more rows weights are widened to tiles, not in registers
constexpr int kEights = kBlockK / 8;

struct MxScratch {
  alignas(64) Bf16 tiles[kMxPanels][kMxBlocks * kTileElements];
  alignas(64) std::byte rows[32 << 10];  // scratch of the bf16 body
};
static_assert(sizeof(MxScratch) <= kWidenedScratchBytes);

// Returns eight e4m3 numbers times 2^-8, from the upper bytes of 16 bits: shifted right by one and
// read as fp16. This conversion ignores DAZ.
inline __m256 e4m3_times_2_to_minus_8(__m128i uppers) {
  const auto kept = static_cast<int16_t>(0xbf80);
  return _mm256_cvtph_ps(_mm_and_si128(_mm_srai_epi16(uppers, 1), _mm_set1_epi16(kept)));
}

inline __m256 e8m0_scales(const std::byte* from) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23));
}
inline __m256 e4m3_scales(const std::byte* from) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  const __m128i uppers = _mm_slli_epi16(_mm_cvtepu8_epi16(bytes), 8);
  return _mm256_mul_ps(e4m3_times_2_to_minus_8(uppers), _mm256_set1_ps(0x1p8f));
}

// Eight neighbouring k of eight columns as fp32, before they are scaled. They are four pairs of k,
// and each pair has a register with its even k and one with its odd k.
struct Pairs {
  __m256 even[4], odd[4];
};
// Tables for shuffles: the lower and the upper byte of each e2m1 number as bf16, and the sequence
// that brings the bytes of a pair together, where each column had four bytes.
alignas(16) constexpr uint8_t kLowerBytes[16] = {0, 0, 0x80, 0xc0, 0, 0x40, 0x80, 0xc0,
                                                 0, 0, 0x80, 0xc0, 0, 0x40, 0x80, 0xc0};
alignas(16) constexpr uint8_t kUpperBytes[16] = {0,    0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40,
                                                 0x80, 0xbf, 0xbf, 0xbf, 0xc0, 0xc0, 0xc0, 0xc0};
alignas(16) constexpr uint8_t kByPair[16] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
inline __m256i in_both_lanes(const uint8_t (&bytes)[16]) {
  return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
}
// Sorts the bytes by pair, looks up the two bytes of each number as bf16, and joins them to fp32.
inline Pairs e2m1_pairs(__m256i eights) {
  const __m256i lower = in_both_lanes(kLowerBytes), upper = in_both_lanes(kUpperBytes);
  const __m256i sorted = _mm256_shuffle_epi8(eights, in_both_lanes(kByPair));
  const __m256i nibble = _mm256_set1_epi8(15);
  const auto widen = [&](__m256i numbers, __m256(&to)[4]) {
    const __m256i low = _mm256_shuffle_epi8(lower, numbers);
    const __m256i high = _mm256_shuffle_epi8(upper, numbers), none = _mm256_setzero_si256();
    const __m256i first = _mm256_unpacklo_epi8(low, high), last = _mm256_unpackhi_epi8(low, high);
    to[0] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, first));
    to[1] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, first));
    to[2] = _mm256_castsi256_ps(_mm256_unpacklo_epi16(none, last));
    to[3] = _mm256_castsi256_ps(_mm256_unpackhi_epi16(none, last));
  };
  Pairs pairs;
  widen(_mm256_and_si256(sorted, nibble), pairs.even);
  widen(_mm256_and_si256(_mm256_srli_epi16(sorted, 4), nibble), pairs.odd);
  return pairs;
}

inline __m256i load_eights(const MxTile& from, int eight, int half) {
  return _mm256_loadu_si256(
      reinterpret_cast<const __m256i*>(from.numbers + (eight * kPanelN + half * kLanes) * 4));
}
inline __m256 fp4_scales(const MxTile& from, int eight, int half) {
  const bool nvfp4 = from.format == WeightFormat::nvfp4;
  const int group = nvfp4 ? eight / (kEights / 2) : 0;
  const std::byte* const scales = from.scales + group * kPanelN + half * kLanes;
  return nvfp4 ? e4m3_scales(scales) : e8m0_scales(scales);
}

// Stores a pair of k of eight columns; both are bf16 numbers.
inline void store_pair(__m256 even, __m256 odd, Bf16* to) {
  const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(even), 16);
  _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                     _mm256_or_si256(low, _mm256_castps_si256(odd)));
}

void widen_fp4(const MxTile& from, int half, Bf16* to) {
  for (int eight = 0; eight < kEights; ++eight) {
    const __m256 scale = fp4_scales(from, eight, half);
    const Pairs pairs = e2m1_pairs(load_eights(from, eight, half));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      store_pair(_mm256_mul_ps(pairs.even[i], scale), _mm256_mul_ps(pairs.odd[i], scale),
                 to + (eight * 4 + i) * 2 * kPanelN + half * 2 * kLanes);
  }
}

void widen_fp8(const MxTile& from, int half, Bf16* to) {
  const __m256 scale = e8m0_scales(from.scales + half * kLanes);
  const auto number = [&](__m128i uppers) {
    return _mm256_mul_ps(_mm256_mul_ps(e4m3_times_2_to_minus_8(uppers), _mm256_set1_ps(0x1p8f)),
                         scale);
  };
  for (int pair = 0; pair < kBlockK / 2; ++pair) {
    const int at = pair * 2 * kPanelN + half * 2 * kLanes;
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from.numbers + at));
    store_pair(number(_mm_slli_epi16(both, 8)), number(both), to + at);
  }
}

// sums += e + o of one k-block for R rows, prepared in x [R][32], by half a panel.
template <int R>
inline void add_fp4_block(const float* x, const MxTile& w, int half, __m256 (&sums)[R]) {
  __m256 e[R], o[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) e[r] = o[r] = _mm256_setzero_ps();
#pragma GCC unroll 1
  for (int eight = 0; eight < kEights; ++eight, x += 8) {
    const __m256 scale = fp4_scales(w, eight, half);
    const Pairs pairs = e2m1_pairs(load_eights(w, eight, half));
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m256 even = _mm256_mul_ps(pairs.even[i], scale);
      const __m256 odd = _mm256_mul_ps(pairs.odd[i], scale);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const float* a = x + r * kBlockK + 2 * i;
        e[r] = _mm256_fmadd_ps(_mm256_broadcast_ss(a), even, e[r]);
        o[r] = _mm256_fmadd_ps(_mm256_broadcast_ss(a + 1), odd, o[r]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = _mm256_add_ps(sums[r], _mm256_add_ps(e[r], o[r]));
}

// Multiplies all panels of mxfp4 or nvfp4 with R rows.
template <int R>
void multiply_fp4_rows(const ScaledProduct<Bf16>& p, int row) {
  constexpr int kFp4TileBytes = kTileElements / 2;
  auto* const x = static_cast<float*>(p.scratch);
  for (int block = 0; block < p.k_blocks; ++block)
    for (int r = 0; r < R; ++r)
      widen_block(p.x + (row + r) * p.x_stride + block * kBlockK, x + (block * R + r) * kBlockK);
  const int groups = p.groups / p.k_blocks;  // in one tile
  for (int panel = 0; panel < p.panels; ++panel) {
    MxTile tile = {p.format, p.w + panel * p.panel_bytes,
                   p.scales + int64_t{panel} * p.groups * kPanelN};
    __m256 sums[2][R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[0][r] = sums[1][r] = _mm256_setzero_ps();
    for (int block = 0; block < p.k_blocks; ++block) {
      for (int at = 0; at < kFp4TileBytes; at += 64)
        _mm_prefetch(reinterpret_cast<const char*>(tile.numbers + kMxAhead + at), _MM_HINT_T0);
      for (int half = 0; half < 2; ++half)
        add_fp4_block<R>(x + block * R * kBlockK, tile, half, sums[half]);
      tile.numbers += kFp4TileBytes, tile.scales += groups * kPanelN;
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
      for (int half = 0; half < 2; ++half)
        _mm256_storeu_ps(p.y + (row + r) * p.y_stride + panel * kPanelN + half * kLanes,
                         sums[half][r]);
  }
}

}  // namespace

void avx2_product_mx(const ScaledProduct<Bf16>& p) {
  if (p.format == WeightFormat::mxfp8 || p.rows > kFewMxRows)
    return widened_product_mx(p, {avx2_widen_mx_tile, avx2_product_bf16});
  for_each_rows<kFewMxRows>(p.rows,
                            [&](auto count, int row) { multiply_fp4_rows<count()>(p, row); });
}

void avx2_widen_mx_tile(const MxTile& from, Bf16* to) {
  const int bytes = from.format == WeightFormat::mxfp8 ? kTileElements : kTileElements / 2;
  for (int at = 0; at < bytes; at += 64)
    _mm_prefetch(reinterpret_cast<const char*>(from.numbers + kMxAhead + at), _MM_HINT_T0);
  for (int half = 0; half < 2; ++half)
    from.format == WeightFormat::mxfp8 ? widen_fp8(from, half, to) : widen_fp4(from, half, to);
}

void widened_product_mx(const ScaledProduct<Bf16>& p, const MxWidening& by) {
  HOCKET_CHECK(product_scratch_bytes(kMxRows, kMxBlocks) <= int64_t{sizeof(MxScratch::rows)});
  MxScratch& scratch = *static_cast<MxScratch*>(p.scratch);
  Product<Bf16> part;
  part.w = scratch.tiles[0];
  part.panel_stride = kMxBlocks * kTileElements;
  part.x_stride = p.x_stride;
  part.y_stride = p.y_stride;
  part.scratch = scratch.rows;
  const int groups = p.groups / p.k_blocks;  // in one tile
  const int64_t tile_step = p.panel_bytes / p.k_blocks;
  for (int panel = 0; panel < p.panels; panel += kMxPanels) {
    part.panels = p.panels - panel < kMxPanels ? p.panels - panel : kMxPanels;
    for (int first = 0; first < p.k_blocks; first += kMxBlocks) {
      part.k_blocks = p.k_blocks - first < kMxBlocks ? p.k_blocks - first : kMxBlocks;
      part.accumulate = first > 0;
      for (int i = 0; i < part.panels; ++i)
        for (int block = 0; block < part.k_blocks; ++block) {
          const int64_t group = int64_t{panel + i} * p.groups + int64_t{first + block} * groups;
          by.tile({p.format, p.w + (panel + i) * p.panel_bytes + (first + block) * tile_step,
                   p.scales + group * kPanelN},
                  scratch.tiles[i] + block * kTileElements);
        }
      for (int row = 0; row < p.rows; row += kMxRows) {
        part.rows = p.rows - row < kMxRows ? p.rows - row : kMxRows;
        part.x = p.x + row * p.x_stride + int64_t{first} * kBlockK;
        part.y = p.y + row * p.y_stride + panel * kPanelN;
        by.bf16(part);
      }
    }
  }
}

}  // namespace hocket::cpu
