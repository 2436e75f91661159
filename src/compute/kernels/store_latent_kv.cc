#include "compute/kernels/store_latent_kv.h"

#include <algorithm>

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {
namespace {

struct LatentKvWriter {
  const RowKernels& rows;
  const StoreLatentKvCall& call;

  int rank() const { return call.kv.shape.value_dim; }
  int rope_dim() const { return call.kv.shape.key_dim - rank(); }

  // y = round(x), rotated by the angles of the row.
  template <class T>
  void rotate(int64_t row, const float* x, T* y) const {
    rows.of<T>().head({.x = x,
                       .dim = rope_dim(),
                       .cos = call.cos.row(row),
                       .sin = call.sin.row(row),
                       .rotary_dim = static_cast<int>(2 * call.cos.cols),
                       .style = call.style,
                       .y = y});
  }
  template <class T>
  void norm(int64_t row, T* y) const {
    rows.of<T>().rms_norm(call.latent.row(row), call.kv_norm.data(), rank(), call.norm_eps, y);
  }

  template <class T>
  void finish_queries(int64_t row) const {
    const int dim = call.nope_dim + rope_dim();
    const int64_t padded = round_up(dim, kBlockK);
    for (int h = 0; h < call.num_heads; ++h) {
      const float* const x = call.q.row(row) + int64_t{h} * dim;
      T* const y = call.q_out.as<T>().row(row) + h * padded;
      rows.of<T>().round(x, call.nope_dim, y);
      rotate(row, x + call.nope_dim, y + call.nope_dim);
      std::fill(y + dim, y + padded, T{});
    }
  }

  template <class T>
  void store(int64_t row) const {
    const KvSlot slot = call.slots[row];
    T* const y = call.kv.latent<T>(slot.page, slot.offset);
    norm(row, y);
    rotate(row, call.latent.row(row) + rank(), y + call.kv.shape.rope_offset());
  }
  // Needs a buffer of [max(rank, rope_dim)].
  void store_int8(int64_t row, float* buffer) const {
    const KvSlot slot = call.slots[row];
    auto* const y = call.kv.latent<int8_t>(slot.page, slot.offset);
    float* const scales = call.kv.scales(slot.page, 0) + 2 * slot.offset;
    const auto quantize = [&](int n, int8_t* q, float* scale) {
      rows.f32.quantize({.x = buffer, .n = n, .group = n, .padded = n, .q = q, .scales = scale});
    };
    norm(row, buffer);
    quantize(rank(), y, scales);
    rotate(row, call.latent.row(row) + rank(), buffer);
    quantize(rope_dim(), y + call.kv.shape.rope_offset(), scales + 1);
  }
};

void check(const StoreLatentKvCall& call) {
  const KvShape& shape = call.kv.shape;
  const int rank = shape.value_dim, rope_dim = shape.key_dim - shape.value_dim;
  const int head_dim = call.nope_dim + rope_dim;
  const int64_t rows = call.q.rows;
  HOCKET_CHECK(shape.kind == KvShape::Kind::latent);
  HOCKET_CHECK((rank >= 1 && rope_dim >= 2 && rope_dim % 2 == 0));
  HOCKET_CHECK((shape.dtype == DType::int8 || shape.dtype == call.q_out.dtype));
  HOCKET_CHECK(call.q.cols == int64_t{call.num_heads} * head_dim);
  HOCKET_CHECK((call.q_out.rows == rows));
  HOCKET_CHECK(call.q_out.cols == call.num_heads * round_up(head_dim, kBlockK));
  HOCKET_CHECK((call.latent.rows == rows && call.latent.cols == shape.key_dim));
  HOCKET_CHECK(static_cast<int>(call.kv_norm.size()) == rank);
  HOCKET_CHECK(call.cos.rows == rows);
  HOCKET_CHECK((call.cos.cols == 0 || 2 * call.cos.cols == rope_dim));
  HOCKET_CHECK((call.sin.rows == rows && call.sin.cols == call.cos.cols));
  HOCKET_CHECK(static_cast<int64_t>(call.slots.size()) == rows);
}

}  // namespace

void store_latent_kv(Backend& backend, const StoreLatentKvCall& call) {
  check(call);
  const KvShape& shape = call.kv.shape;
  const LatentKvWriter body{backend.rows(), call};
  with_dtype(call.q_out.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t work = call.q.cols + call.latent.cols;
    for_row_ranges(backend, call.q.rows, work, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t r = begin; r < end; ++r) {
        const KvSlot slot = call.slots[r];
        HOCKET_CHECK(slot.page != kNoPage && slot.offset >= 0 && slot.offset < shape.page_tokens);
        body.finish_queries<T>(r);
        if (shape.dtype == DType::int8) {
          body.store_int8(r, backend.scratch<float>(worker, shape.key_dim));
        } else {
          body.store<T>(r);
        }
      }
    });
  });
}

}  // namespace hocket
