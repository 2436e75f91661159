// A body for one softmax block: scores, softmax and values of some query rows, for instruction sets
// whose product has no tiles of its own. Queries and probabilities stay in fp32, so no number is
// widened twice.   Private to attention; thread: any worker, FTZ and DAZ set. Bits: those of
// attention.h.
#pragma once

#include <cstdint>

#include "base/machine.h"
#include "compute/kernels/attention.h"
#include "compute/kernels/choose.h"

namespace hocket {

// Rows that one call of a body takes; the block's keys stay in cache while they are processed.
inline constexpr int kBlockRows = 16;
// Units of 32 keys in a block. A unit is two panels of keys and one k-block of values.
inline constexpr int kBlockUnits = kSoftmaxBlock / kBlockK;

template <class T>
struct BlockRows {
  int rows = 0;              // 1..kBlockRows
  const float* q = nullptr;  // [rows][k_blocks * 32], rows q_stride apart
  int64_t q_stride = 0;
  int k_blocks = 0;
  const int* visible = nullptr;  // [rows] keys that a row sees, 1..128, non-decreasing
  float scale = 1;
  // Start of each unit's tiles. Units beyond the last row's visible keys are not read.
  const T* keys[kBlockUnits] = {};
  int64_t key_stride = 0;  // elements from one panel of 16 keys to the next
  const T* values[kBlockUnits] = {};
  int64_t value_stride = 0;  // elements from one panel of 16 dims to the next
  // Keys of the next block. The body prefetches them and this block's values; if null, neither.
  const T* const* next_keys = nullptr;
  int v_panels = 0;
  float* scores = nullptr;  // scratch: [kBlockRows][128]
  float* m = nullptr;       // [rows]
  float* l = nullptr;       // [rows]
  float* o = nullptr;       // [rows][v_panels * 16]
};

template <class T>
using BlockBody = void (*)(const BlockRows<T>&);

namespace cpu {
void avx512_attention_block_bf16(const BlockRows<Bf16>& b);
void avx512_attention_block_f32(const BlockRows<float>& b);
}  // namespace cpu

// Returns the body for items of `rows` query rows; null if such items run by separate products.
template <class T>
BlockBody<T> block_body(Isa isa, int rows) {
  if (isa < Isa::avx512) return nullptr;
  if constexpr (sizeof(T) == sizeof(float)) {
    return cpu::avx512_attention_block_f32;
  } else {
    return isa == Isa::avx512 || rows < kTileRows ? cpu::avx512_attention_block_bf16 : nullptr;
  }
}

}  // namespace hocket
