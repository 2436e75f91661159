// A body for one softmax block: scores, softmax and values of some query rows. Queries and
// probabilities are kept as the row operands of its products, so no number is prepared twice.
// Private to attention; thread: any worker, FTZ and DAZ set. Bits: those of attention.h.
#pragma once

#include <cstdint>

#include "compute/tensor/bf16.h"
#include "compute/tensor/view.h"

namespace hocket {

inline constexpr int kSoftmaxBlock = 128;
// Rows that one call of a body takes, at most.
inline constexpr int kBlockRows = 32;
// Units of 32 keys in a block. A unit is two panels of keys and one k-block of values.
inline constexpr int kBlockUnits = kSoftmaxBlock / kBlockK;

template <class T>
struct BlockRows {
  int rows = 0;              // 1 to those of the body
  const float* q = nullptr;  // as BlockBody::prepare_queries makes them, rows q_stride apart
  int64_t q_stride = 0;
  int k_blocks = 0;
  // [rows] a row sees keys [hidden, visible) of the block, 0 <= hidden < visible <= 128; neither
  // falls from one row to the next.
  const int* hidden = nullptr;
  const int* visible = nullptr;
  float scale = 1;
  float soft_cap = 0;  // 0: none
  // Start of each unit's tiles. Units without a visible key are not read.
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
struct BlockBody {
  // Turns n numbers of query rows, a multiple of 32, into row operands of 32 bits, whose meaning is
  // the body's own.
  void (*prepare_queries)(const T* q, int64_t n, float* operands);
  int block_operands;  // operands of 32 numbers, at most 32
  int rows;            // that one call takes, at most kBlockRows
  void (*run)(const BlockRows<T>&);
};

namespace cpu {
extern const BlockBody<Bf16> kBf16BlockByFma;
extern const BlockBody<float> kF32BlockByFma;
extern const BlockBody<Bf16> kBf16BlockByVdpbf16ps;
// Best from kTileRows rows on.
extern const BlockBody<Bf16> kBf16BlockByTiles;
extern const BlockBody<Bf16> kBf16BlockByEmulatedTiles;
}  // namespace cpu

}  // namespace hocket
