// fp8 weights, widened to bf16 tiles: four panels of one group at a time, which all rows then use.
#include <immintrin.h>

#include "compute/kernels/arithmetic/product_bodies.h"

namespace hocket::cpu {
namespace {

constexpr int kPanels = 4;  // panels widened at once
constexpr int kRows = 64;   // rows that use them at once
constexpr int kGroupBlocks = kFp8Group / kBlockK;
constexpr int kTileBytes = kTileElements;
constexpr int kFp8Ahead = 4 * kTileBytes;  // bytes by which weights are fetched ahead

struct Scratch {
  alignas(64) Bf16 tiles[kPanels][kGroupBlocks * kTileElements];
  alignas(64) float results[kRows][kPanels * kPanelN];
  alignas(64) std::byte rows[32 << 10];  // scratch of the bf16 body
};
static_assert(sizeof(Scratch) <= kWidenedScratchBytes);

// Widens eight numbers in the upper bytes of 16 bits. Shifted right by one and read as fp16, each
// is the number times 2^-8, subnormals included: this conversion ignores DAZ.
inline __m256 widen(__m128i uppers) {
  const __m128i halves =
      _mm_and_si128(_mm_srai_epi16(uppers, 1), _mm_set1_epi16(static_cast<int16_t>(0xbf80)));
  return _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(0x1p8f));
}

// y = fma(result, scale, y), from +0 in the first group.
void add_group(const ScaledProduct<Bf16>& p, const Product<Bf16>& done, int panel, int group,
               float* y) {
  for (int i = 0; i < done.panels; ++i) {
    const auto* scales = reinterpret_cast<const float*>(p.scales) +
                         (int64_t{panel + i} * p.groups + group) * kPanelN;
    for (int column = 0; column < kPanelN; column += 8) {
      const __m256 scale = _mm256_loadu_ps(scales + column);
      const float* from = done.y + i * kPanelN + column;
      float* to = y + i * kPanelN + column;
      for (int row = 0; row < done.rows; ++row, from += done.y_stride, to += p.y_stride) {
        const __m256 acc = group == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(to);
        _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_loadu_ps(from), scale, acc));
      }
    }
  }
}

}  // namespace

// Exact, because three bits of mantissa fit into bf16.
void avx2_widen_tile(const std::byte* from, Bf16* to) {
  for (int at = 0; at < kTileBytes; at += 16) {
    _mm_prefetch(reinterpret_cast<const char*>(from + at + kFp8Ahead), _MM_HINT_T0);
    const __m128i both = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
    const __m256i even = _mm256_castps_si256(widen(_mm_slli_epi16(both, 8)));
    const __m256i odd = _mm256_castps_si256(widen(both));
    _mm256_store_si256(reinterpret_cast<__m256i*>(to + at),
                       _mm256_or_si256(_mm256_srli_epi32(even, 16), odd));
  }
}

void widened_product_fp8(const ScaledProduct<Bf16>& p, const Widening& by) {
  HOCKET_CHECK(p.group_blocks == kGroupBlocks);
  HOCKET_CHECK(product_scratch_bytes(kRows, kGroupBlocks) <= int64_t{sizeof(Scratch::rows)});
  Scratch& scratch = *static_cast<Scratch*>(p.scratch);
  Product<Bf16> part;
  part.w = scratch.tiles[0];
  part.panel_stride = kGroupBlocks * kTileElements;
  part.y = scratch.results[0];
  part.y_stride = kPanels * kPanelN;
  part.x_stride = p.x_stride;
  part.scratch = scratch.rows;
  for (int panel = 0; panel < p.panels; panel += kPanels) {
    part.panels = p.panels - panel < kPanels ? p.panels - panel : kPanels;
    for (int group = 0; group < p.groups; ++group) {
      const int first = group * kGroupBlocks, remaining = p.k_blocks - first;
      part.k_blocks = remaining < kGroupBlocks ? remaining : kGroupBlocks;
      for (int i = 0; i < part.panels; ++i)
        for (int block = 0; block < part.k_blocks; ++block)
          by.tile(p.w + (panel + i) * p.panel_bytes + int64_t{first + block} * kTileBytes,
                  scratch.tiles[i] + block * kTileElements);
      for (int row = 0; row < p.rows; row += kRows) {
        part.rows = p.rows - row < kRows ? p.rows - row : kRows;
        part.x = p.x + row * p.x_stride + int64_t{first} * kBlockK;
        by.bf16(part);
        add_group(p, part, panel, group, p.y + row * p.y_stride + panel * kPanelN);
      }
    }
  }
}

}  // namespace hocket::cpu
