// The layout of a token's keys and values. One page holds page_tokens tokens of one layer.
//
// Kind heads (grouped-query attention):
//
//   page | head 0: keys, values, scales | head 1: keys, values, scales | ...
//   keys    [page_tokens/16][d_k/32 blocks][16 pairs of d][16 keys][2]
//           one packed weight with n = keys, k = d
//   values  [page_tokens/32][d_v/16 panels][16 pairs of keys][16 d][2]
//           one packed weight for each 32 keys, with n = d, k = keys
//   scales  int8 only: fp32 [page_tokens] of keys, then [page_tokens] of values
//
// QK^T and PV are thus canonical products over the page in place. Pages of fewer than 32 tokens
// hold rows instead, whose tiles are gathered before each product:
//
//   keys    [page_tokens][d_k padded to 32]        values  [page_tokens][d_v padded to 16]
//
// Kind latent (multi-head latent attention): one row per token, with the latent c (value_dim
// numbers, after its norm) and the rotated key part that all heads share (key_dim - value_dim):
//
//   page | [page_tokens][c padded to 32 | key part padded to 32] | int8 only: fp32 scales
//          [page_tokens][2]: of c, of the key part
//
// An int8 number q stands for round(q * scale), with scale = amax / 127 over the token's key,
// value, c or key part. Dims are padded with zeros (d_k to 32, d_v to 16). Pages are cleared before
// their first token is written, so every number in a page is finite.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "compute/kernels/arithmetic/packed_weight.h"

namespace hocket {

// Geometry of one layer's pages.
struct KvShape {
  enum class Kind : uint8_t { heads, latent };
  Kind kind = Kind::heads;
  DType dtype = DType::bf16;       // stored type: bf16, f32 or int8
  int num_heads = 0;               // KV heads; 1 for a latent
  int key_dim = 0, value_dim = 0;  // latent: kv_rank + rope_dim, kv_rank
  int page_tokens = 32;            // a multiple of 32, or 1, 2, 4, 8, 16

  // Kind heads: elements of one head in one page.
  int64_t key_elements() const { return page_tokens * round_up(key_dim, kBlockK); }
  int64_t value_elements() const { return page_tokens * round_up(value_dim, kPanelN); }
  // Kind latent: elements of one token's row, and the offset of its key part.
  int64_t row_elements() const { return rope_offset() + round_up(key_dim - value_dim, kBlockK); }
  int64_t rope_offset() const { return round_up(value_dim, kBlockK); }

  // Bytes of the scales of one head, or of a latent page.
  int64_t scale_bytes() const {
    return dtype == DType::int8 ? 2 * page_tokens * int64_t{sizeof(float)} : 0;
  }
  int64_t head_bytes() const {
    const int64_t elements =
        kind == Kind::latent ? page_tokens * row_elements() : key_elements() + value_elements();
    return elements * size_of(dtype) + scale_bytes();
  }
  // True if the kernels support this page size.
  bool has_known_pages() const {
    const bool power_of_two = page_tokens > 0 && (page_tokens & (page_tokens - 1)) == 0;
    return page_tokens > 0 && (page_tokens % kBlockK == 0 || (in_rows() && power_of_two));
  }
  int64_t page_bytes() const { return num_heads * head_bytes(); }

  // Kind heads: true if tokens are stored as rows, not as tiles.
  bool in_rows() const { return page_tokens < kBlockK; }
  // Kind heads: true if pages hold tiles of the type that products take.
  bool reads_in_place() const { return dtype != DType::int8 && !in_rows(); }

  // Kind heads: offsets inside a head's keys and values, in elements.
  int64_t key_offset(int token, int dim) const {
    if (in_rows()) return token * round_up(key_dim, kBlockK) + dim;
    return packed_offset(token, dim, round_up(key_dim, kBlockK) / kBlockK);
  }
  int64_t value_offset(int token, int dim) const {
    if (in_rows()) return token * round_up(value_dim, kPanelN) + dim;
    return token / kBlockK * (kBlockK * round_up(value_dim, kPanelN)) +
           packed_offset(dim, token % kBlockK, 1);
  }
};

// All pages of one layer.
struct KvLayer {
  KvShape shape;
  void* data = nullptr;  // [num_pages][page_bytes]

  std::byte* head(PageId page, int head) const {
    return static_cast<std::byte*>(data) + value(page) * shape.page_bytes() +
           head * shape.head_bytes();
  }
  // T must be the stored type: Bf16, float or int8_t.
  template <class T>
  T* keys(PageId page, int head) const {
    return reinterpret_cast<T*>(this->head(page, head));
  }
  template <class T>
  T* values(PageId page, int head) const {
    return keys<T>(page, head) + shape.key_elements();
  }
  // Kind latent: returns the row of a token.
  template <class T>
  T* latent(PageId page, int token) const {
    return keys<T>(page, 0) + token * shape.row_elements();
  }
  // int8 only: the scales of a page. Kind heads: key scale at [0][token], value scale at
  // [1][token]; kind latent: at [token][0] (c) and [token][1] (key part).
  float* scales(PageId page, int head) const {
    return reinterpret_cast<float*>(this->head(page, head) + shape.head_bytes() -
                                    shape.scale_bytes());
  }
};

// The place in the cache where one row's key and value are stored.
struct KvSlot {
  PageId page = kNoPage;
  int offset = 0;  // token inside the page
};

}  // namespace hocket
