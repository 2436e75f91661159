#include "compute/kernels/attention_gate.h"

#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_ranges.h"

namespace hocket {

void gate_attention(Backend& backend, const AttentionGateCall& call) {
  HOCKET_CHECK(call.gates.rows == call.x.rows);
  HOCKET_CHECK(call.gates.cols >= (call.num_heads - 1) * call.step + call.dim);
  HOCKET_CHECK(call.x.cols == int64_t{call.num_heads} * call.dim);
  with_dtype(call.x.dtype, [&](auto t) {
    using T = decltype(t);
    const auto gate = backend.rows().delta<T>().sigmoid_gate;
    const View<T> x = call.x.as<T>();
    for_row_ranges(backend, x.rows, x.cols, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r)
        for (int h = 0; h < call.num_heads; ++h)
          gate(call.gates.row(r) + h * call.step, call.dim, x.row(r) + int64_t{h} * call.dim);
    });
  });
}

void gate_heads(Backend& backend, View<const float> gates, MatrixView x) {
  HOCKET_CHECK((gates.rows == x.rows && x.cols % gates.cols == 0));
  const int64_t dim = x.cols / gates.cols;
  with_dtype(x.dtype, [&](auto t) {
    using T = decltype(t);
    const View<T> of = x.as<T>();
    for_row_ranges(backend, x.rows, x.cols, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r)
        for (int64_t h = 0; h < gates.cols; ++h) {
          float factor = 1;
          backend.rows().delta<float>().sigmoid_gate(gates.row(r) + h, 1, &factor);
          T* const head = of.row(r) + h * dim;
          backend.rows().of<T>().multiply(head, factor, dim, head);
        }
    });
  });
}

void sigmoid_rows(Backend& backend, View<const float> gates, View<float> x) {
  HOCKET_CHECK(gates.rows == x.rows && gates.cols == 1);
  for_row_ranges(backend, x.rows, x.cols, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      float factor = 1;
      backend.rows().delta<float>().sigmoid_gate(gates.row(r), 1, &factor);
      backend.rows().scale(factor, x.cols, x.row(r));
    }
  });
}

}  // namespace hocket
