#include "compute/kernels/qkv.h"

#include <algorithm>
#include <cstring>

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {
namespace {

// One token's key into its column of the page's tiles: a pair of dims stands together, pairs 16
// keys apart.
template <class T>
void store_key(const T* key, const KvShape& shape, int token, T* keys) {
  T* const first = keys + shape.key_offset(token, 0);
  const auto num_pairs = static_cast<int>(round_up(shape.key_dim, kBlockK) / 2);
  for (int pair = 0; pair < num_pairs; ++pair) {
    T* const to = first + pair / 16 * kTileElements + pair % 16 * (2 * kPanelN);
    std::memcpy(to, key + 2 * pair, 2 * sizeof(T));
  }
}

// One token's value: every second element of its row of each panel; the other half is the
// neighbouring token's.
template <class T>
void store_value(const T* v, const KvShape& shape, int token, T* values) {
  T* const first = values + shape.value_offset(token, 0);
  for (int dim = 0; dim < shape.value_dim; ++dim)
    first[dim / kPanelN * kTileElements + dim % kPanelN * 2] = v[dim];
}

template <class T>
struct QkvRows {
  const RowKernels& rows;
  const QkvCall& call;

  HeadRow<T> head_row(int64_t row, int head, std::span<const float> norm) const {
    const int dim = call.kv.shape.key_dim;
    return {.x = call.qkv.row(row) + int64_t{head} * dim,
            .dim = dim,
            .norm = norm.empty() ? nullptr : norm.data(),
            .eps = call.norm_eps,
            .cos = call.cos.row(row),
            .sin = call.sin.row(row),
            .rotary_dim = static_cast<int>(2 * call.cos.cols),
            .y = nullptr};
  }

  // buffer [padded dim]: one head on its way into the pages.
  void finish(int64_t row, T* buffer) const {
    const KvShape& shape = call.kv.shape;
    const int dim = shape.key_dim;
    const int64_t padded = round_up(dim, kBlockK);
    for (int h = 0; h < call.num_heads; ++h) {
      HeadRow<T> q = head_row(row, h, call.q_norm);
      q.y = call.q.as<T>().row(row) + h * padded;
      rows.of<T>().head(q);
      std::fill(q.y + dim, q.y + padded, T{});
    }
    const KvSlot slot = call.slots[row];
    HOCKET_CHECK(slot.page != kNoPage && slot.offset >= 0 && slot.offset < shape.page_tokens);
    for (int h = 0; h < shape.num_heads; ++h) {
      HeadRow<T> k = head_row(row, call.num_heads + h, call.k_norm);
      k.y = buffer;
      rows.of<T>().head(k);
      std::fill(buffer + dim, buffer + padded, T{});
      store_key(buffer, shape, slot.offset, call.kv.keys<T>(slot.page, h));
      const float* const v =
          call.qkv.row(row) + int64_t{call.num_heads + shape.num_heads + h} * dim;
      rows.of<T>().round(v, dim, buffer);
      store_value(buffer, shape, slot.offset, call.kv.values<T>(slot.page, h));
    }
  }
};

}  // namespace

void finish_qkv(Backend& backend, const QkvCall& call) {
  const KvShape& shape = call.kv.shape;
  const int64_t rows = call.qkv.rows, padded = round_up(shape.key_dim, kBlockK);
  HOCKET_CHECK(shape.key_dim == shape.value_dim);
  HOCKET_CHECK(call.qkv.cols == int64_t{call.num_heads + 2 * shape.num_heads} * shape.key_dim);
  HOCKET_CHECK(call.q.rows == rows && call.q.cols == call.num_heads * padded);
  HOCKET_CHECK(static_cast<int64_t>(call.slots.size()) == rows);
  HOCKET_CHECK(call.cos.rows == rows && call.sin.rows == rows && call.cos.cols == call.sin.cols);
  HOCKET_CHECK(2 * call.cos.cols <= shape.key_dim);
  for (std::span<const float> norm : {call.q_norm, call.k_norm})
    HOCKET_CHECK((norm.empty() || static_cast<int>(norm.size()) == shape.key_dim));
  with_dtype(shape.dtype, [&](auto t) {
    using T = decltype(t);
    const QkvRows<T> body{backend.rows(), call};
    for_row_ranges(backend, rows, call.qkv.cols, [&](int64_t begin, int64_t end, int worker) {
      T* const buffer = backend.scratch<T>(worker, padded);
      for (int64_t r = begin; r < end; ++r) body.finish(r, buffer);
    });
  });
}

}  // namespace hocket
