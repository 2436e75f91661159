// Some query rows meet one softmax block: scores, softmax and values in one body, for instruction
// sets whose product has no tiles of its own. Rows come and probabilities stay widened to fp32, so
// that nothing is widened twice.   Private to attention; thread: any worker, FTZ and DAZ set.
// Bits: those of attention.h.
#pragma once

#include <cstdint>

#include "base/machine.h"
#include "compute/kernels/attention.h"
#include "compute/kernels/choose.h"

namespace hocket {

// Rows that a body takes at a time: the block's keys stay near while they pass.
inline constexpr int kBlockRows = 16;
// Keys of a block, 32 at a time: two panels of keys, one k-block of values.
inline constexpr int kBlockUnits = kSoftmaxBlock / kBlockK;

template <class T>
struct BlockRows {
  int rows = 0;              // 1..kBlockRows
  const float* q = nullptr;  // [rows][k_blocks * 32], rows q_stride apart
  int64_t q_stride = 0;
  int k_blocks = 0;
  const int* visible = nullptr;  // [rows] keys that a row sees, 1..128, never falling
  float scale = 1;
  // Where each unit's tiles begin; those behind the last row's visible keys are not read.
  const T* keys[kBlockUnits] = {};
  int64_t key_stride = 0;  // from panel to panel of 16 keys
  const T* values[kBlockUnits] = {};
  int64_t value_stride = 0;  // from panel to panel of 16 dims
  // The next block's keys, to be brought near as this block's values are; null: neither is.
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

// The body for items of so many rows; null: they run by products.
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
