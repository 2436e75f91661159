// Where keys and values of a token stand. One page holds page_tokens tokens of one layer, all KV
// heads:
//
//   page | head 0: keys, values | head 1: keys, values | ...
//   keys    [page_tokens/16][d_k/32 blocks][16 pairs of d][16 keys][2]
//           a packed weight with n = keys, k = d
//   values  [page_tokens/32][d_v/16 panels][16 pairs of keys][16 d][2]
//           for each 32 keys one with n = d, k = keys
//
// so that QK^T and PV are canonical products over the page as it lies. Dims are padded with zeros
// (d_k to 32, d_v to 16). Pages are cleared before their first token is written: every number in a
// page is finite.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "compute/kernels/packed_weight.h"

namespace hocket {

// Geometry of one layer's pages.
struct KvShape {
  DType dtype = DType::bf16;
  int num_heads = 0;  // KV heads
  int key_dim = 0, value_dim = 0;
  int page_tokens = 32;  // a multiple of 32

  int64_t key_elements() const { return page_tokens * round_up(key_dim, kBlockK); }
  int64_t value_elements() const { return page_tokens * round_up(value_dim, kPanelN); }
  int64_t head_elements() const { return key_elements() + value_elements(); }
  int64_t page_elements() const { return num_heads * head_elements(); }
  int64_t page_bytes() const { return page_elements() * size_of(dtype); }

  // Offsets inside a head's keys and values.
  int64_t key_offset(int token, int dim) const {
    return packed_offset(token, dim, round_up(key_dim, kBlockK) / kBlockK);
  }
  int64_t value_offset(int token, int dim) const {
    return token / kBlockK * (kBlockK * round_up(value_dim, kPanelN)) +
           packed_offset(dim, token % kBlockK, 1);
  }
};

// All pages of one layer.
struct KvLayer {
  KvShape shape;
  void* data = nullptr;  // [num_pages][page_elements]

  template <class T>
  T* keys(PageId page, int head) const {
    return static_cast<T*>(data) + value(page) * shape.page_elements() +
           head * shape.head_elements();
  }
  template <class T>
  T* values(PageId page, int head) const {
    return keys<T>(page, head) + shape.key_elements();
  }
};

// Where one row's key and value go.
struct KvSlot {
  PageId page = kNoPage;
  int offset = 0;  // token inside the page
};

}  // namespace hocket
