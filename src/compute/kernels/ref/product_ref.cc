#include <cmath>

#include "compute/kernels/product_bodies.h"

namespace hocket::ref {
namespace {

// Sixteen columns of one row: c += (e + o) for each k-block.
template <class T>
void add_blocks(const T* x, const T* w, int k_blocks, float* c) {
  for (int block = 0; block < k_blocks; ++block, x += kBlockK, w += kTileElements) {
    for (int column = 0; column < kPanelN; ++column) {
      float e = 0, o = 0;
      for (int pair = 0; pair < kBlockK / 2; ++pair) {
        const T* both = w + (pair * kPanelN + column) * 2;
        e = std::fma(to_float(x[2 * pair]), to_float(both[0]), e);
        o = std::fma(to_float(x[2 * pair + 1]), to_float(both[1]), o);
      }
      c[column] = c[column] + (e + o);
    }
  }
}

template <class T>
void product(const Product<T>& p) {
  for (int row = 0; row < p.rows; ++row) {
    for (int panel = 0; panel < p.panels; ++panel) {
      float* c = p.y + row * p.y_stride + panel * kPanelN;
      if (!p.accumulate)
        for (int column = 0; column < kPanelN; ++column) c[column] = 0;
      add_blocks(p.x + row * p.x_stride, p.w + panel * p.panel_stride, p.k_blocks, c);
    }
  }
}

}  // namespace

void product_bf16(const Product<Bf16>& p) {
  product(p);
}
void product_f32(const Product<float>& p) {
  product(p);
}

}  // namespace hocket::ref
