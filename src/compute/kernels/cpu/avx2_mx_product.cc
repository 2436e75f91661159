// mxfp4, mxfp8 and nvfp4, widened to bf16 tiles: four panels and four k-blocks at a time, which all
// rows then use.
#include <immintrin.h>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/avx2_registers.h"

namespace hocket::cpu {
namespace {

constexpr int kMxPanels = 4;    // panels widened at once
constexpr int kMxBlocks = 4;    // and their k-blocks
constexpr int kMxRows = 64;     // rows that use them at once
constexpr int kMxAhead = 1024;  // bytes by which weights are fetched ahead

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

// Returns the product of a scale and number i of the eights of eight columns.
inline __m256 e2m1_number(__m256i eights, int i, __m256 scale) {
  const __m256 magnitudes = _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6);
  const __m256 magnitude =
      _mm256_permutevar8x32_ps(magnitudes, _mm256_srli_epi32(eights, 4 * i));  // reads three bits
  const __m256 sign = _mm256_and_ps(_mm256_castsi256_ps(_mm256_slli_epi32(eights, 28 - 4 * i)),
                                    _mm256_set1_ps(-0.0f));
  return _mm256_mul_ps(_mm256_or_ps(magnitude, sign), scale);
}

// Stores a pair of k of eight columns; both are bf16 numbers.
inline void store_pair(__m256 even, __m256 odd, Bf16* to) {
  const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(even), 16);
  _mm256_store_si256(reinterpret_cast<__m256i*>(to),
                     _mm256_or_si256(low, _mm256_castps_si256(odd)));
}

void widen_fp4(const MxTile& from, int half, Bf16* to) {
  constexpr int kEights = kBlockK / 8;
  const bool nvfp4 = from.format == WeightFormat::nvfp4;
  for (int eight = 0; eight < kEights; ++eight) {
    const int group = nvfp4 ? eight / (kEights / 2) : 0;
    const std::byte* const scales = from.scales + group * kPanelN + half * kLanes;
    const __m256 scale = nvfp4 ? e4m3_scales(scales) : e8m0_scales(scales);
    const __m256i eights = _mm256_loadu_si256(
        reinterpret_cast<const __m256i*>(from.numbers + (eight * kPanelN + half * kLanes) * 4));
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2)
      store_pair(e2m1_number(eights, i, scale), e2m1_number(eights, i + 1, scale),
                 to + (eight * 4 + i / 2) * 2 * kPanelN + half * 2 * kLanes);
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

}  // namespace

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
