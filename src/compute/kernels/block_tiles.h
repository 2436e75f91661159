// Tiles of one softmax block, made in a worker's scratch if the pages do not hold such tiles.
//
//   keys    [8 panels of 16 keys][q_dim / 32][tile]
//   values  [v_dim / 16 panels][4 k-blocks of 32 keys][tile]
//
// Tokens are counted from the block's first; tiles are made 32 tokens at a time.   Private to
// attention; thread: the worker that owns the scratch.
#pragma once

#include <algorithm>
#include <cstring>

#include "compute/kernels/attention_item.h"

namespace hocket {

template <class T>
struct BlockTiles {
  static constexpr int kValueBlocks = kSoftmaxBlock / kBlockK;
  int q_dim = 0, v_dim = 0;
  T* keys = nullptr;
  T* values = nullptr;

  void lay(Layout& layout) {
    keys = layout.array<T>(int64_t{kSoftmaxBlock} * q_dim);
    values = layout.array<T>(int64_t{kSoftmaxBlock} * v_dim);
  }
  T* key_panel(int token) const { return keys + int64_t{token} / kPanelN * kPanelN * q_dim; }
  T* value_tile(int token, int panel) const {
    return values + (int64_t{panel} * kValueBlocks + token / kBlockK) * kTileElements;
  }
  TileRun<T> key_run(int block_end) const { return {keys, int64_t{kPanelN} * q_dim, block_end}; }
  TileRun<T> value_run(int block_end) const {
    return {values, kValueBlocks * kTileElements, block_end};
  }

  // Packs the rows of 32 tokens from `token` on, which are `stride` elements apart: the first q_dim
  // numbers of each as keys, the first v_dim as values.
  void pack_keys(int token, const T* rows, int64_t stride) const;
  void pack_values(int token, const T* rows, int64_t stride) const;
};

// x[i] = round(q[i] * scales[i % 32]).   n: a multiple of 32.
void dequantize(const int8_t* q, int64_t n, const float* scales, Bf16* x);
void dequantize(const int8_t* q, int64_t n, const float* scales, float* x);

// x[i] = round(q[i] * scale) for any n; reads and writes nothing past n.
template <class T>
void dequantize_row(const int8_t* q, int64_t n, float scale, T* x) {
  float lanes[kBlockK];
  std::fill_n(lanes, kBlockK, scale);
  const int64_t whole = n / kBlockK * kBlockK, rest = n - whole;
  dequantize(q, whole, lanes, x);
  if (rest == 0) return;
  int8_t tail[kBlockK] = {};
  T last[kBlockK];
  std::memcpy(tail, q + whole, rest);
  dequantize(tail, kBlockK, lanes, last);
  std::memcpy(x + whole, last, rest * sizeof(T));
}

}  // namespace hocket
