// The sources of keys of latent attention: they make tiles from latent rows, either as they are
// (absorbed) or after a head's products (expanded).   Private to latent_attention.cc;
// attention_item.h defines a Source.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "compute/kernels/block_tiles.h"
#include "compute/kernels/latent_attention.h"

namespace hocket {

// Gives latent rows as activations, 32 tokens at a time.
template <class T>
struct LatentRows {
  const KvLayer& kv;
  std::span<const PageId> pages;
  T* rows = nullptr;  // [32][row_elements], empty if rows are read in place

  void lay(Layout& scratch) {
    rows = scratch.array<T>(gathers() ? kBlockK * kv.shape.row_elements() : 0);
  }
  // Returns the row of `token`, a multiple of 32; the next 31 rows follow, row_elements() apart.
  // Rows beyond the last page are zero.
  const T* from(int token) const {
    const int page_tokens = kv.shape.page_tokens;
    if (!gathers()) return kv.latent<T>(pages[token / page_tokens], token % page_tokens);
    const int64_t columns = kv.shape.row_elements();
    const int end = static_cast<int>(pages.size()) * page_tokens;
    for (int t = 0; t < kBlockK; ++t) {
      if (token + t < end) {
        copy(token + t, rows + t * columns);
      } else {
        std::fill_n(rows + t * columns, columns, T{});
      }
    }
    return rows;
  }

 private:
  bool gathers() const { return kv.shape.dtype == DType::int8 || kv.shape.page_tokens < kBlockK; }
  void copy(int token, T* row) const {
    const KvShape& shape = kv.shape;
    const int64_t c = shape.rope_offset(), columns = shape.row_elements();
    const PageId page = pages[token / shape.page_tokens];
    const int in_page = token % shape.page_tokens;
    if (shape.dtype != DType::int8) {
      std::memcpy(row, kv.latent<T>(page, in_page), columns * sizeof(T));
      return;
    }
    const int8_t* const q = kv.latent<int8_t>(page, in_page);
    const float* const scales = kv.scales(page, 0) + 2 * in_page;
    dequantize_row(q, c, scales[0], row);
    dequantize_row(q + c, columns - c, scales[1], row + c);
  }
};

// Absorbed form: the row is the key of all heads, and its first numbers are the value.
template <class T>
struct AbsorbedSource {
  LatentRows<T> latents;
  BlockTiles<T> tiles;

  void load(int block, int block_end) {
    const int64_t stride = latents.kv.shape.row_elements();
    for (int token = block; token < block_end; token += kBlockK) {
      const T* const rows = latents.from(token);
      tiles.pack_keys(token - block, rows, stride);
      tiles.pack_values(token - block, rows, stride);
    }
  }
  TileRun<T> keys(int, int block_end) const { return tiles.key_run(block_end); }
  TileRun<T> values(int, int block_end) const { return tiles.value_run(block_end); }
};

template <class T>
struct AbsorbedSources {
  const KvLayer& kv;

  AbsorbedSource<T> source(const AttentionSequence& sequence, int, Layout& scratch) const {
    AbsorbedSource<T> source{{kv, sequence.pages}, {}};
    source.tiles.q_dim = static_cast<int>(kv.shape.row_elements());
    source.tiles.v_dim = static_cast<int>(round_up(kv.shape.value_dim, kPanelN));
    source.tiles.lay(scratch);
    source.latents.lay(scratch);
    return source;
  }
};

// Dims of a head before padding.
struct HeadDims {
  int nope = 0, rope = 0, value = 0;
  int q_dim() const { return static_cast<int>(round_up(nope + rope, kBlockK)); }
  int v_dim() const { return static_cast<int>(round_up(value, kPanelN)); }
  // Results per token of the product with key_up or value_up.
  int up_dim() const { return static_cast<int>(round_up(std::max(nope, value), kPanelN)); }
};

// Expanded form: a head's keys and values are products of the latents, 32 tokens at a time.
template <class T>
struct ExpandedSource {
  LatentRows<T> latents;
  const ActivationKernels<T>& kernels;
  const ProductKernels& products;
  PackedWeight key_up, value_up;
  HeadDims dims;
  BlockTiles<T> tiles;
  float* results = nullptr;  // [32][up_dim]
  T* rows = nullptr;         // [32][q_dim or v_dim]
  std::byte* product = nullptr;

  void lay(Layout& scratch) {
    tiles.q_dim = dims.q_dim();
    tiles.v_dim = dims.v_dim();
    tiles.lay(scratch);
    latents.lay(scratch);
    results = scratch.array<float>(int64_t{kBlockK} * dims.up_dim());
    rows = scratch.array<T>(int64_t{kBlockK} * std::max(dims.q_dim(), dims.v_dim()));
    const auto k_blocks = static_cast<int>(latents.kv.shape.rope_offset() / kBlockK);
    product = scratch.array<std::byte>(product_scratch_bytes(kBlockK, k_blocks));
  }

  void load(int block, int block_end) {
    const KvShape& shape = latents.kv.shape;
    const int q_dim = dims.q_dim(), v_dim = dims.v_dim(), key_dim = dims.nope + dims.rope;
    for (int token = block; token < block_end; token += kBlockK) {
      const T* const c = latents.from(token);
      multiply(c, key_up);
      for (int t = 0; t < kBlockK; ++t) {
        T* const key = rows + t * q_dim;
        kernels.round(results + t * dims.up_dim(), dims.nope, key);
        std::memcpy(key + dims.nope, c + t * shape.row_elements() + shape.rope_offset(),
                    dims.rope * sizeof(T));
        std::fill(key + key_dim, key + q_dim, T{});
      }
      tiles.pack_keys(token - block, rows, q_dim);
      multiply(c, value_up);
      for (int t = 0; t < kBlockK; ++t)
        kernels.round(results + t * dims.up_dim(), v_dim, rows + t * v_dim);
      tiles.pack_values(token - block, rows, v_dim);
    }
  }
  TileRun<T> keys(int, int block_end) const { return tiles.key_run(block_end); }
  TileRun<T> values(int, int block_end) const { return tiles.value_run(block_end); }

 private:
  void multiply(const T* c, const PackedWeight& w) const {
    products.run<T>({.x = c,
                     .x_stride = latents.kv.shape.row_elements(),
                     .rows = kBlockK,
                     .w = w.panel_as<T>(0),
                     .panel_stride = int64_t{w.k_blocks()} * kTileElements,
                     .panels = w.panels(),
                     .k_blocks = w.k_blocks(),
                     .y = results,
                     .y_stride = dims.up_dim(),
                     .accumulate = false,
                     .scratch = product});
  }
};

template <class T>
struct ExpandedSources {
  const KvLayer& kv;
  const ActivationKernels<T>& kernels;
  const ProductKernels& products;
  LatentHeads heads;  // empty if only scratch is measured
  HeadDims dims;

  ExpandedSource<T> source(const AttentionSequence& sequence, int head, Layout& scratch) const {
    ExpandedSource<T> source{.latents = {kv, sequence.pages},
                             .kernels = kernels,
                             .products = products,
                             .key_up = {},
                             .value_up = {},
                             .dims = dims,
                             .tiles = {}};
    if (!heads.key_up.empty()) {
      source.key_up = heads.key_up[head];
      source.value_up = heads.value_up[head];
    }
    source.lay(scratch);
    return source;
  }
};

}  // namespace hocket
