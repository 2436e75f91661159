#include "compute/kernels/block_tiles.h"

#include <immintrin.h>

namespace hocket {
namespace {

// Transposes eight rows of eight pairs of bf16 into to[pair][row].
void transpose_pairs(const Bf16* from, int64_t stride, Bf16* to) {
  __m256 r[8], t[8];
  for (int i = 0; i < 8; ++i)
    r[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(from + i * stride));
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    float* const low = reinterpret_cast<float*>(to + i * 2 * kPanelN);
    float* const high = reinterpret_cast<float*>(to + (i + 4) * 2 * kPanelN);
    _mm256_storeu_ps(low, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(high, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

// Packs one tile of keys: 16 rows of 32 numbers.
void pack_key_tile(const Bf16* rows, int64_t stride, Bf16* tile) {
  for (int key = 0; key < kPanelN; key += 8)
    for (int d = 0; d < kBlockK; d += 16)
      transpose_pairs(rows + key * stride + d, stride, tile + d / 2 * (2 * kPanelN) + 2 * key);
}
void pack_key_tile(const float* rows, int64_t stride, float* tile) {
  for (int d = 0; d < kBlockK; d += 2)
    for (int key = 0; key < kPanelN; ++key)
      std::memcpy(tile + d * kPanelN + 2 * key, rows + key * stride + d, 2 * sizeof(float));
}

// Writes sixteen dims of two neighbouring keys, alternating.
void interleave(const Bf16* a, const Bf16* b, Bf16* to) {
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a));
  const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
  const __m256i low = _mm256_unpacklo_epi16(x, y), high = _mm256_unpackhi_epi16(x, y);
  auto* const out = reinterpret_cast<__m256i*>(to);
  _mm256_storeu_si256(out, _mm256_permute2x128_si256(low, high, 0x20));
  _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(low, high, 0x31));
}
void interleave(const float* a, const float* b, float* to) {
  for (int d = 0; d < kPanelN; ++d) {
    to[2 * d] = a[d];
    to[2 * d + 1] = b[d];
  }
}

__m256 widen(const int8_t* q, __m256 scales) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(q));
  return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)), scales);
}

// Rounds as to_bf16() does; each result is in the low half of its number.
__m256i round_bits(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc0), nan);
}

void store_rounded(__m256 low, __m256 high, Bf16* to) {
  const __m256i mixed = _mm256_packus_epi32(round_bits(low), round_bits(high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(mixed, 0xd8));
}

}  // namespace

template <class T>
void BlockTiles<T>::pack_keys(int token, const T* rows, int64_t stride) const {
  for (int key = 0; key < kBlockK; key += kPanelN) {
    T* const panel = key_panel(token + key);
    for (int d = 0; d < q_dim; d += kBlockK)
      pack_key_tile(rows + key * stride + d, stride, panel + d * kPanelN);
  }
}

template <class T>
void BlockTiles<T>::pack_values(int token, const T* rows, int64_t stride) const {
  for (int panel = 0; panel < v_dim / kPanelN; ++panel) {
    T* const tile = value_tile(token, panel);
    for (int key = 0; key < kBlockK; key += 2) {
      const T* const row = rows + key * stride + int64_t{panel} * kPanelN;
      interleave(row, row + stride, tile + key * kPanelN);
    }
  }
}

template struct BlockTiles<Bf16>;
template struct BlockTiles<float>;

void dequantize(const int8_t* q, int64_t n, const float* scales, Bf16* x) {
  const __m256 low = _mm256_loadu_ps(scales), high = _mm256_loadu_ps(scales + 8);
  const __m256 low2 = _mm256_loadu_ps(scales + 16), high2 = _mm256_loadu_ps(scales + 24);
  for (int64_t i = 0; i < n; i += kBlockK) {
    store_rounded(widen(q + i, low), widen(q + i + 8, high), x + i);
    store_rounded(widen(q + i + 16, low2), widen(q + i + 24, high2), x + i + 16);
  }
}

void dequantize(const int8_t* q, int64_t n, const float* scales, float* x) {
  for (int64_t i = 0; i < n; i += kBlockK)
    for (int lane = 0; lane < kBlockK; lane += 8)
      _mm256_storeu_ps(x + i + lane, widen(q + i + lane, _mm256_loadu_ps(scales + lane)));
}

}  // namespace hocket
