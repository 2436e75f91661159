#include "compute/kernels/store_kv.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {
namespace {

// Stores one token's key into its column of the page's tiles: pairs of dims, 16 keys apart.
template <class T>
void store_key(const T* key, const KvShape& shape, int token, T* keys) {
  T* const first = keys + shape.key_offset(token, 0);
  if (shape.in_rows()) {
    std::copy_n(key, round_up(shape.key_dim, kBlockK), first);
    return;
  }
  const auto num_pairs = static_cast<int>(round_up(shape.key_dim, kBlockK) / 2);
  for (int pair = 0; pair < num_pairs; ++pair) {
    T* const to = first + pair / 16 * kTileElements + pair % 16 * (2 * kPanelN);
    std::memcpy(to, key + 2 * pair, 2 * sizeof(T));
  }
}

// Stores one token's value: every second element of its row in each panel. The other half belongs
// to the neighbouring token.
template <class T>
void store_value(const T* v, const KvShape& shape, int token, T* values) {
  T* const first = values + shape.value_offset(token, 0);
  if (shape.in_rows()) {
    std::copy_n(v, shape.value_dim, first);
    return;
  }
  for (int dim = 0; dim < shape.value_dim; ++dim)
    first[dim / kPanelN * kTileElements + dim % kPanelN * 2] = v[dim];
}

constexpr int kMaxHeadDim = 1024;
constexpr auto kOnes = [] {
  std::array<float, kMaxHeadDim> ones{};
  ones.fill(1);
  return ones;
}();

struct StoreKvRows {
  const RowKernels& rows;
  const StoreKvCall& call;

  int dim() const { return call.kv.shape.key_dim; }
  int64_t padded_dim() const { return round_up(dim(), kBlockK); }
  int64_t buffer_floats() const { return round_up(std::max(dim(), value_dim()), kBlockK); }
  int value_dim() const { return call.kv.shape.value_dim; }
  // Return the first column of a query, a key or a value.
  int64_t query_column(int head) const { return int64_t{head} * query_step(call); }
  int64_t key_column(int head) const {
    return query_column(call.num_heads) + int64_t{head} * dim();
  }
  int64_t value_column(int head) const {
    return key_column(call.kv.shape.num_heads) + int64_t{head} * value_dim();
  }
  static int query_step(const StoreKvCall& call) {
    return call.query_step > 0 ? call.query_step : call.kv.shape.key_dim;
  }

  template <class T>
  void rotate_head(int64_t row, int64_t column, std::span<const float> norm, T* y) const {
    rows.of<T>().head({.x = call.qkv.row(row) + column,
                       .dim = dim(),
                       .norm = norm.empty() ? nullptr : norm.data(),
                       .eps = call.norm_eps,
                       .cos = call.cos.row(row),
                       .sin = call.sin.row(row),
                       .rotary_dim = static_cast<int>(2 * call.cos.cols),
                       .style = call.style,
                       .y = y});
  }
  // Norms, rotates and rounds the head at `column` of the row into y, and writes zeros after it.
  template <class T>
  void finish_head(int64_t row, int64_t column, std::span<const float> norm, T* y) const {
    if (call.unit_norms) {
      std::array<float, kMaxHeadDim> rotated;
      rotate_head(row, column, norm, rotated.data());
      rows.of<T>().rms_norm(rotated.data(), kOnes.data(), dim(), call.norm_eps, y);
    } else {
      rotate_head(row, column, norm, y);
    }
    std::fill(y + dim(), y + padded_dim(), T{});
  }
  // Returns the value of a head, which lies in `changed` if it has a norm or a scale.
  const float* value(int64_t row, int head, float* changed) const {
    const float* const from = call.qkv.row(row) + value_column(head);
    if (!call.value_norm && call.value_scale == 1) return from;
    if (call.value_norm) {
      rows.f32.rms_norm(from, kOnes.data(), value_dim(), call.norm_eps, changed);
    } else {
      std::copy_n(from, value_dim(), changed);
    }
    rows.scale(call.value_scale, value_dim(), changed);
    return changed;
  }

  template <class T>
  void finish_queries(int64_t row) const {
    T* const q = call.q.as<T>().row(row);
    for (int h = 0; h < call.num_heads; ++h)
      finish_head(row, query_column(h), call.q_norm, q + h * padded_dim());
  }

  // Stores k and v of one head. buffer [2 * buffer_floats()] holds one head at a time, and behind
  // it a scaled value.
  template <class T>
  void store(int64_t row, int head, float* floats) const {
    const KvLayer& kv = call.kv;
    const KvSlot slot = call.slots[row];
    T* const buffer = reinterpret_cast<T*>(floats);
    finish_head(row, key_column(head), call.k_norm, buffer);
    store_key(buffer, kv.shape, slot.offset, kv.keys<T>(slot.page, head));
    rows.of<T>().round(value(row, head, floats + buffer_floats()), value_dim(), buffer);
    store_value(buffer, kv.shape, slot.offset, kv.values<T>(slot.page, head));
  }
  // The same for int8 pages; the key is rotated in fp32.
  void store_int8(int64_t row, int head, float* buffer) const {
    const KvLayer& kv = call.kv;
    const KvSlot slot = call.slots[row];
    auto* const q = reinterpret_cast<int8_t*>(buffer + buffer_floats());
    float* const scales = kv.scales(slot.page, head) + slot.offset;
    const auto quantize = [&](const float* x, int n, float* scale) {
      rows.f32.quantize({.x = x,
                         .n = n,
                         .group = n,
                         .padded = round_up(n, kBlockK),
                         .q = q,
                         .scales = scale,
                         .sums = nullptr});
    };
    finish_head(row, key_column(head), call.k_norm, buffer);
    quantize(buffer, dim(), scales);
    store_key(q, kv.shape, slot.offset, kv.keys<int8_t>(slot.page, head));
    quantize(value(row, head, buffer), value_dim(), scales + kv.shape.page_tokens);
    store_value(q, kv.shape, slot.offset, kv.values<int8_t>(slot.page, head));
  }
};

}  // namespace

void store_kv(Backend& backend, const StoreKvCall& call) {
  const KvShape& shape = call.kv.shape;
  const int64_t rows = call.qkv.rows, padded = round_up(shape.key_dim, kBlockK);
  HOCKET_CHECK(StoreKvRows::query_step(call) >= shape.key_dim);
  HOCKET_CHECK(call.qkv.cols == int64_t{call.num_heads} * StoreKvRows::query_step(call) +
                                    int64_t{shape.num_heads} * (shape.key_dim + shape.value_dim));
  HOCKET_CHECK(call.q.rows == rows && call.q.cols == call.num_heads * padded);
  HOCKET_CHECK(static_cast<int64_t>(call.slots.size()) == rows);
  HOCKET_CHECK(call.cos.rows == rows && call.sin.rows == rows && call.cos.cols == call.sin.cols);
  HOCKET_CHECK(2 * call.cos.cols <= shape.key_dim);
  if (call.unit_norms) HOCKET_CHECK(shape.key_dim <= kMaxHeadDim);
  if (call.value_norm) HOCKET_CHECK(shape.value_dim <= kMaxHeadDim);
  for (std::span<const float> norm : {call.q_norm, call.k_norm})
    HOCKET_CHECK((norm.empty() || static_cast<int>(norm.size()) == shape.key_dim));
  HOCKET_CHECK(shape.kind == KvShape::Kind::heads);
  HOCKET_CHECK(call.q.dtype == shape.dtype || shape.dtype == DType::int8);
  const StoreKvRows body{backend.rows(), call};
  with_dtype(call.q.dtype, [&](auto t) {
    using T = decltype(t);
    for_row_ranges(backend, rows, call.qkv.cols, [&](int64_t begin, int64_t end, int worker) {
      float* const buffer = backend.scratch<float>(worker, 2 * body.buffer_floats());
      for (int64_t r = begin; r < end; ++r) {
        const KvSlot slot = call.slots[r];
        HOCKET_CHECK(slot.page != kNoPage && slot.offset >= 0 && slot.offset < shape.page_tokens);
        body.finish_queries<T>(r);
        for (int h = 0; h < shape.num_heads; ++h) {
          if (shape.dtype == DType::int8) {
            body.store_int8(r, h, buffer);
          } else {
            body.store<T>(r, h, buffer);
          }
        }
      }
    });
  });
}

}  // namespace hocket
