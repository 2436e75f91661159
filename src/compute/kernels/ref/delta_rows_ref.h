// The reference for delta_rows.h: plain loops, straight from the contract. Included by rows_ref.cc
// alone.
#pragma once

#include <cmath>

#include "compute/kernels/arithmetic/delta_rows.h"
#include "compute/kernels/arithmetic/lane.h"
#include "compute/kernels/ref/row_sums.h"
#include "compute/tensor/bf16.h"

namespace hocket::ref {
namespace {

void convolve(const Convolution& call) {
  const auto row = [&](int64_t r) {
    return r < 0 ? call.before[r + 3] : call.x + r * call.x_stride;
  };
  for (int64_t r = 0; r < call.rows; ++r)
    for (int64_t c = 0; c < call.n; ++c) {
      float sum = row(r - 3)[c] * call.taps[c];
      for (int tap = 1; tap < 4; ++tap)
        sum = std::fma(row(r - 3 + tap)[c], call.taps[tap * call.step + c], sum);
      call.y[r * call.y_stride + c] = silu(sum);
    }
}

void decay_gates(const DecayGates& gates) {
  for (int64_t h = 0; h < gates.n; ++h) {
    gates.g[h] = -(exp(gates.a_log[h]) * softplus(gates.a[h] + gates.dt_bias[h]));
    gates.beta[h] = sigmoid(gates.b[h]);
  }
}

void channel_gates(const ChannelGates& gates) {
  for (int64_t c = 0; c < gates.n; ++c)
    gates.g[c] = -(exp(gates.a_log) * softplus(gates.a[c] + gates.dt_bias[c]));
}

template <class T>
void unit(const float* x, int64_t n, float factor, T* y) {
  const float inv = 1.0f / std::sqrt(sum_of_squares(x, n) + kUnitEps);
  for (int64_t i = 0; i < n; ++i) y[i] = from_float<T>((x[i] * inv) * factor);
}

template <class T>
void channel_decay(const ChannelDecay<T>& row) {
  for (int64_t c = 0; c < row.n; ++c)
    row.y[c] = from_float<T>(to_float(row.x[c]) * exp(row.sums[c] - (row.from ? row.from[c] : 0)));
}

template <class T>
void gated_norm(const GatedNormRow<T>& row) {
  const float inv = inverse_rms(row.x, row.n, row.eps);
  for (int64_t i = 0; i < row.n; ++i)
    row.y[i] = from_float<T>(((row.x[i] * inv) * row.w[i]) * silu(row.z[i]));
}

template <class T>
void sigmoid_gate(const float* gate, int64_t n, T* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = from_float<T>(to_float(x[i]) * sigmoid(gate[i]));
}

template <class T>
constexpr DeltaKernels<T> delta() {
  return {unit<T>, channel_decay<T>, gated_norm<T>, sigmoid_gate<T>};
}

}  // namespace
}  // namespace hocket::ref
