// The bodies of delta_rows.h for 16 lanes V, in the manner of rows.inl.h.
#pragma once

#include "compute/kernels/arithmetic/delta_rows.h"
#include "compute/kernels/cpu/rows.inl.h"

namespace hocket::cpu {

template <class V>
struct DeltaRows {
  using R = Rows<V>;

  static void convolve(const ConvolutionRow& row) {
    R::blocks(row.n, [&](int64_t i, auto lanes) {
      V sum = R::load(row.rows[0] + i, lanes) * R::load(row.taps + i, lanes);
      for (int tap = 1; tap < 4; ++tap)
        sum = fma(R::load(row.rows[tap] + i, lanes), R::load(row.taps + tap * row.step + i, lanes),
                  sum);
      R::store_rounded(math::silu(sum), row.y + i, lanes);
    });
  }

  static void decay_gates(const DecayGates& gates) {
    R::blocks(gates.n, [&](int64_t i, auto lanes) {
      const V x = R::load(gates.a + i, lanes) + R::load(gates.dt_bias + i, lanes);
      const V decay = math::exp(R::load(gates.a_log + i, lanes)) * math::softplus(x);
      R::store_rounded(R::negative(decay), gates.g + i, lanes);
      R::store_rounded(math::sigmoid(R::load(gates.b + i, lanes)), gates.beta + i, lanes);
    });
  }

  static void channel_gates(const ChannelGates& gates) {
    const V rate = math::exp(V::all(gates.a_log));
    R::blocks(gates.n, [&](int64_t i, auto lanes) {
      const V x = R::load(gates.a + i, lanes) + R::load(gates.dt_bias + i, lanes);
      R::store_rounded(R::negative(rate * math::softplus(x)), gates.g + i, lanes);
    });
  }

  template <class T>
  static void unit(const float* x, int64_t n, float factor, T* y) {
    V squares = V::all(0);
    R::blocks(n, [&](int64_t i, auto lanes) {
      const V v = R::load(x + i, lanes);
      squares = fma(v, v, squares);
    });
    const V inv = V::all(1) / sqrt(V::all(squares.sum()) + V::all(kUnitEps));
    R::blocks(n, [&](int64_t i, auto lanes) {
      R::store_rounded((R::load(x + i, lanes) * inv) * V::all(factor), y + i, lanes);
    });
  }

  template <class T>
  static void decayed(const DecayedRow<T>& row) {
    const auto value = [&](int64_t i, auto lanes) {
      return R::load(row.x + i, lanes) * math::exp(V::all(row.sum) - R::load(row.sums + i, lanes));
    };
    R::blocks(
        row.count,
        [&](int64_t i, auto lanes) { R::store_rounded(value(i, lanes), row.y + i, lanes); },
        [&](int64_t i, int lanes) {
          R::template rounded<T>(value(i, lanes)).keep(lanes, 0).store(row.y + i);
        });
    for (int i = (row.count + 15) / 16 * 16; i < row.padded; i += 16) V::all(0).store(row.y + i);
  }

  template <class T>
  static void channel_decay(const ChannelDecay<T>& row) {
    R::blocks(row.n, [&](int64_t i, auto lanes) {
      V sum = R::load(row.sums + i, lanes);
      if (row.from != nullptr) sum = sum - R::load(row.from + i, lanes);
      R::store_rounded(R::load(row.x + i, lanes) * math::exp(sum), row.y + i, lanes);
    });
  }

  template <class T>
  static void correction(const float* v, const float* r, float beta, int64_t n, T* y) {
    R::blocks(n, [&](int64_t i, auto lanes) {
      R::store_rounded(V::all(beta) * (R::load(v + i, lanes) - R::load(r + i, lanes)), y + i,
                       lanes);
    });
  }

  template <class T>
  static void gated_norm(const GatedNormRow<T>& row) {
    const V inv = R::inverse_rms(row.x, row.n, row.eps);
    R::blocks(row.n, [&](int64_t i, auto lanes) {
      const V normed = (R::load(row.x + i, lanes) * inv) * R::load(row.w + i, lanes);
      R::store_rounded(normed * math::silu(R::load(row.z + i, lanes)), row.y + i, lanes);
    });
  }

  template <class T>
  static void sigmoid_gate(const float* gate, int64_t n, T* x) {
    R::blocks(n, [&](int64_t i, auto lanes) {
      R::store_rounded(R::load(x + i, lanes) * math::sigmoid(R::load(gate + i, lanes)), x + i,
                       lanes);
    });
  }

  template <class T>
  static constexpr DeltaKernels<T> table() {
    return {unit<T>, decayed<T>, channel_decay<T>, correction<T>, gated_norm<T>, sigmoid_gate<T>};
  }
};

}  // namespace hocket::cpu
