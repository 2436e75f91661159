// Products of 32 x 32 results in four tiles. The order of work keeps the weights of a k-chunk in L1
// while rows pass:
//
//   for each k-chunk of 512: for each two panels: for each 32 rows: C += A . B
//
// C is kept in y between chunks. With at most 32 rows the chunk is all of k. The hardware tiles and
// the emulated ones share this code, so the emulated ones test it bit for bit without AMX. The
// order of sums inside `C += A . B` is that of all bodies: arithmetic/product.h.
#include <immintrin.h>

#include "compute/kernels/arithmetic/product_bodies.h"
#include "compute/kernels/cpu/emulated_tiles.h"
#include "compute/kernels/cpu/hardware_tiles.h"

namespace hocket::cpu {
namespace {

constexpr int kTile = 16;  // rows of a tile, and its columns of fp32
constexpr int kChunkBlocks = 16;
constexpr int kPrefetchBlocks = 4;

// The operands of one k-chunk of up to 32 rows and 2 panels.
struct Chunk {
  const Bf16* x;
  int64_t x_stride;
  const Bf16* w;
  const Bf16* next;  // weights of the following panels; null: no fetching ahead
  int64_t panel_stride;
  int k_blocks;
  float* y;
  int64_t y_stride;
  bool accumulate;
};

template <int kPanels>
void prefetch(const Chunk& chunk, int block) {
  const int ahead = block + kPrefetchBlocks;
  const Bf16* later = ahead < chunk.k_blocks
                          ? chunk.w + int64_t{ahead} * kTileElements
                          : chunk.next + int64_t{ahead - chunk.k_blocks} * kTileElements;
  for (int panel = 0; panel < kPanels; ++panel)
    for (int i = 0; i < kTileElements; i += 32)
      _mm_prefetch(reinterpret_cast<const char*>(later + panel * chunk.panel_stride + i),
                   _MM_HINT_T1);
}

// C is in tiles 0 1 / 2 3, A in 4 / 5, B in 6 7.
template <int kRowTiles, int kPanels, class Tiles>
void multiply(Tiles& tiles, const Chunk& chunk) {
  const int64_t y_bytes = chunk.y_stride * 4, x_bytes = chunk.x_stride * 2;
  float* y0 = chunk.y;
  float* y1 = chunk.y + kTile * chunk.y_stride;
  if (chunk.accumulate) {
    tiles.template load<0>(y0, y_bytes);
    if constexpr (kPanels == 2) tiles.template load<1>(y0 + kTile, y_bytes);
    if constexpr (kRowTiles == 2) tiles.template load<2>(y1, y_bytes);
    if constexpr (kRowTiles == 2 && kPanels == 2) tiles.template load<3>(y1 + kTile, y_bytes);
  } else {
    tiles.template zero<0>();
    tiles.template zero<1>();
    tiles.template zero<2>();
    tiles.template zero<3>();
  }
  for (int block = 0; block < chunk.k_blocks; ++block) {
    if (chunk.next != nullptr) prefetch<kPanels>(chunk, block);
    const Bf16* a = chunk.x + int64_t{block} * kBlockK;
    const Bf16* b = chunk.w + int64_t{block} * kTileElements;
    tiles.template load<6>(b, 64);
    tiles.template load<4>(a, x_bytes);
    tiles.template multiply_bf16<0, 4, 6>();
    if constexpr (kPanels == 2) {
      tiles.template load<7>(b + chunk.panel_stride, 64);
      tiles.template multiply_bf16<1, 4, 7>();
    }
    if constexpr (kRowTiles == 2) {
      tiles.template load<5>(a + kTile * chunk.x_stride, x_bytes);
      tiles.template multiply_bf16<2, 5, 6>();
      if constexpr (kPanels == 2) tiles.template multiply_bf16<3, 5, 7>();
    }
  }
  tiles.template store<0>(y0, y_bytes);
  if constexpr (kPanels == 2) tiles.template store<1>(y0 + kTile, y_bytes);
  if constexpr (kRowTiles == 2) tiles.template store<2>(y1, y_bytes);
  if constexpr (kRowTiles == 2 && kPanels == 2) tiles.template store<3>(y1 + kTile, y_bytes);
}

template <class Tiles>
void multiply(Tiles& tiles, const Chunk& chunk, int row_tiles, int panels) {
  if (row_tiles == 2) {
    panels == 2 ? multiply<2, 2>(tiles, chunk) : multiply<2, 1>(tiles, chunk);
  } else {
    panels == 2 ? multiply<1, 2>(tiles, chunk) : multiply<1, 1>(tiles, chunk);
  }
}

// The last rows if they fill no whole tiles: padded copies of x and y.
struct Tail {
  int rows = 0;  // 0 if there is no tail
  int row_tiles = 0;
  Bf16* x = nullptr;  // [row_tiles * 16, k]
  int64_t k = 0;
  float* y = nullptr;  // [row_tiles * 16, 32]
};
constexpr int kTailColumns = 2 * kTile;

Tail make_tail(const Product<Bf16>& p, int rows) {
  Tail tail;
  if (rows % kTile == 0) return tail;
  tail.rows = rows;
  tail.row_tiles = rows > kTile ? 2 : 1;
  tail.k = int64_t{p.k_blocks} * kBlockK;
  tail.x = static_cast<Bf16*>(p.scratch);
  tail.y = reinterpret_cast<float*>(tail.x + tail.row_tiles * kTile * tail.k);
  const Bf16* from = p.x + (p.rows - rows) * p.x_stride;
  for (int row = 0; row < rows; ++row)
    std::memcpy(tail.x + row * tail.k, from + row * p.x_stride, tail.k * sizeof(Bf16));
  std::memset(static_cast<void*>(tail.x + rows * tail.k), 0,
              (tail.row_tiles * kTile - rows) * tail.k * sizeof(Bf16));
  return tail;
}

// `at` gives the position of the tail's rows in x and y; `k_begin` is the start of the chunk in k.
template <class Tiles>
void multiply_tail(Tiles& tiles, const Tail& tail, const Chunk& at, int64_t k_begin, int panels) {
  const int64_t bytes = panels * kTile * sizeof(float);
  Chunk chunk = at;
  chunk.x = tail.x + k_begin;
  chunk.x_stride = tail.k;
  chunk.y = tail.y;
  chunk.y_stride = kTailColumns;
  if (chunk.accumulate)
    for (int row = 0; row < tail.rows; ++row)
      std::memcpy(tail.y + row * kTailColumns, at.y + row * at.y_stride, bytes);
  multiply(tiles, chunk, tail.row_tiles, panels);
  for (int row = 0; row < tail.rows; ++row)
    std::memcpy(at.y + row * at.y_stride, tail.y + row * kTailColumns, bytes);
}

// Multiplies all rows of one k-chunk of up to two panels. `chunk` starts at row 0.
template <class Tiles>
void multiply_rows(Tiles& tiles, const Product<Bf16>& p, const Tail& tail, Chunk chunk,
                   int panels) {
  const int64_t k_begin = chunk.x - p.x;
  for (int row = 0; row < p.rows; row += kTileBlockRows) {
    const int remaining = p.rows - row;
    if (remaining >= kTileBlockRows) {
      multiply(tiles, chunk, 2, panels);
    } else if (tail.rows > 0) {
      multiply_tail(tiles, tail, chunk, k_begin, panels);
    } else {
      multiply(tiles, chunk, 1, panels);
    }
    chunk.x += kTileBlockRows * p.x_stride;
    chunk.y += kTileBlockRows * p.y_stride;
    chunk.next = nullptr;  // the first rows have loaded the weights
  }
}

template <class Tiles>
void product(const Product<Bf16>& p) {
  if (p.rows == 0) return;
  Tiles tiles;
  tiles.configure(2 * kBlockK);
  const Tail tail = make_tail(p, p.rows % kTileBlockRows);
  const int chunk_blocks = p.rows <= kTileBlockRows ? p.k_blocks : kChunkBlocks;
  for (int block = 0; block < p.k_blocks; block += chunk_blocks) {
    const int remaining = p.k_blocks - block;
    for (int panel = 0; panel < p.panels; panel += 2) {
      const int panels = p.panels - panel < 2 ? 1 : 2;
      const Bf16* w = p.w + panel * p.panel_stride + int64_t{block} * kTileElements;
      Chunk chunk;
      chunk.x = p.x + int64_t{block} * kBlockK;
      chunk.x_stride = p.x_stride;
      chunk.w = w;
      chunk.next = panel + panels < p.panels ? w + panels * p.panel_stride : w;
      chunk.panel_stride = p.panel_stride;
      chunk.k_blocks = remaining < chunk_blocks ? remaining : chunk_blocks;
      chunk.y = p.y + panel * kTile;
      chunk.y_stride = p.y_stride;
      chunk.accumulate = p.accumulate || block > 0;
      multiply_rows(tiles, p, tail, chunk, panels);
    }
  }
  tiles.release();
}

}  // namespace

void amx_product_bf16(const Product<Bf16>& p) {
  product<HardwareTiles>(p);
}
void amx_emulated_product_bf16(const Product<Bf16>& p) {
  product<EmulatedTiles>(p);
}

}  // namespace hocket::cpu
