// One worker's part of a product: some rows by some panels.
#pragma once

#include <algorithm>

#include "compute/kernels/backend.h"
#include "compute/kernels/choose.h"
#include "compute/kernels/product_kernels.h"

namespace hocket {

// Part of x . w: all rows of x by panels [panel, panel + panels). Where it goes is left open.
template <class T>
Product<T> product_of(View<const T> x, const PackedWeight& w, int panel, int panels) {
  Product<T> p;
  p.x = x.data;
  p.x_stride = x.stride;
  p.rows = static_cast<int>(x.rows);
  p.w = w.panel_as<T>(panel);
  p.panel_stride = int64_t{w.k_blocks()} * kTileElements;
  p.panels = panels;
  p.k_blocks = w.k_blocks();
  return p;
}

// Straight into y, whose columns hold whole panels.
template <class T>
void multiply_into(const Backend& backend, int worker, Product<T> p, float* y, int64_t y_stride) {
  const int64_t bytes = product_scratch_bytes(p.rows, p.k_blocks);
  p.scratch = backend.scratch<std::byte>(worker, bytes);
  p.y = y;
  p.y_stride = y_stride;
  backend.products().run(p);
}

// Into scratch, some rows at a time: then(row, rows, results), results [rows, panels * 16] for rows
// from `row` on.
template <class T, class Then>
void multiply_then(const Backend& backend, int worker, Product<T> p, Then&& then) {
  HOCKET_CHECK(p.panels <= kMaxTaskPanels);
  const int all = p.rows, columns = p.panels * kPanelN;
  const int most = kTaskResults / columns;
  const int64_t bytes = round_up(product_scratch_bytes(std::min(all, most), p.k_blocks), 64);
  p.scratch = backend.scratch<std::byte>(worker, bytes + kTaskResults * sizeof(float));
  p.y = reinterpret_cast<float*>(static_cast<std::byte*>(p.scratch) + bytes);
  p.y_stride = columns;
  for (int row = 0; row < all; row += most) {
    p.rows = std::min(most, all - row);
    backend.products().run(p);
    then(row, p.rows, static_cast<const float*>(p.y));
    p.x += most * p.x_stride;
  }
}

}  // namespace hocket
