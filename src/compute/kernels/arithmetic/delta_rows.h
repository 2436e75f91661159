// The row bodies of gated delta nets and of gated attention, one table per instruction set. Rules:
// rows.h; the formulas are named in delta_net.h.
#pragma once

#include <cstdint>

namespace hocket {

// The squares of a head's numbers are added to this before the root.
inline constexpr float kUnitEps = 1e-6f;

// y[c] = silu(((rows[0][c] * taps[c]) + rows[1][c] * taps[step + c]) + ...), each later term by
// fma; n channels, oldest row first.
struct ConvolutionRow {
  const float* rows[4] = {};
  const float* taps = nullptr;
  int64_t step = 0;
  int64_t n = 0;
  float* y = nullptr;
};

// g = -exp(a_log) * softplus(a + dt_bias);  beta = sigmoid(b);  n heads each.
struct DecayGates {
  const float *a = nullptr, *b = nullptr;
  const float *a_log = nullptr, *dt_bias = nullptr;
  int64_t n = 0;
  float *g = nullptr, *beta = nullptr;
};

// The same g for the n channels of a head, which have one a_log.
struct ChannelGates {
  const float *a = nullptr, *dt_bias = nullptr;
  float a_log = 0;
  int64_t n = 0;
  float* g = nullptr;
};

// y[c] = round(x[c] * exp(sums[c] - from[c])), n channels; without `from` it is exp(sums[c]).
template <class T>
struct ChannelDecay {
  const T* x = nullptr;
  const float *sums = nullptr, *from = nullptr;
  int64_t n = 0;
  T* y = nullptr;
};

// y[j] = round(x[j] * exp(sum - sums[j])) for j < count; +0 up to `padded`, a multiple of 16.
template <class T>
struct DecayedRow {
  const float* x = nullptr;
  const float* sums = nullptr;
  float sum = 0;
  int count = 0, padded = 0;
  T* y = nullptr;
};

// y = round(((x * inv) * w) * silu(z)), with inv as in rms_norm.
template <class T>
struct GatedNormRow {
  const float *x = nullptr, *w = nullptr, *z = nullptr;
  int64_t n = 0;
  float eps = 0;
  T* y = nullptr;
};

template <class T>
struct DeltaKernels {
  // y = round((x * (1 / sqrt(sum(x^2) + kUnitEps))) * factor), the sum by fma.
  void (*unit)(const float* x, int64_t n, float factor, T* y);
  void (*decayed)(const DecayedRow<T>& row);
  void (*channel_decay)(const ChannelDecay<T>& row);
  // y = round(beta * (v - r)).
  void (*correction)(const float* v, const float* r, float beta, int64_t n, T* y);
  void (*gated_norm)(const GatedNormRow<T>& row);
  // x = round(x * sigmoid(gate)).
  void (*sigmoid_gate)(const float* gate, int64_t n, T* x);
};

}  // namespace hocket
