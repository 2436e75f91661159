// The row bodies of gated delta nets and of gated attention, one table per instruction set. Rules:
// rows.h; the formulas are named in delta_net.h.
#pragma once

#include <cstdint>

namespace hocket {

// The squares of a head's numbers are added to this before the root.
inline constexpr float kUnitEps = 1e-6f;

// y[r][c] = silu(((x[r-3][c] * taps[c]) + x[r-2][c] * taps[step + c]) + ...), each later term by
// fma; n channels of `rows` rows. The rows before the first are elsewhere, the oldest first.
struct Convolution {
  const float* before[3] = {};
  const float* x = nullptr;
  int64_t x_stride = 0;
  const float* taps = nullptr;
  int64_t step = 0;
  int64_t rows = 0, n = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
};

// g = -exp(a_log) * softplus(a + dt_bias);  beta = sigmoid(b);  n numbers each.
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
  void (*channel_decay)(const ChannelDecay<T>& row);
  void (*gated_norm)(const GatedNormRow<T>& row);
  // x = round(x * sigmoid(gate)).
  void (*sigmoid_gate)(const float* gate, int64_t n, T* x);
};

// The tokens [first, first + count) of a block in one value head: first the rows of their keys,
// behind them those of their queries. Token i, of either kind:
//   products *= exp(sums[i]);  weights[j] = round(scores[j] * exp(sums[i] - sums[j])), for j < i,
//   in a query also for j = i, and +0 for the others.
template <class T>
struct DecayedRows {
  const float* sums = nullptr;  // [kDeltaBlock]
  int first = 0, count = 0;
  float* products = nullptr;  // [2 * count][width], its rows `stride` apart
  int64_t stride = 0, width = 0;
  const float* scores = nullptr;  // [2 * count][kDeltaBlock]
  T* weights = nullptr;           // [2 * count][kDeltaBlock]
};

// The tokens [first, first + count) of a k-block of tokens; the values of the tokens before `first`
// are computed. One token after the other, with i its place in the k-block:
//   r = read + the k-block of  sum over j < i of weights[j] * values[j]
//   values[i] = round(beta * (v - r)),  +0 behind the numbers of v
//   result += the k-block of  sum over j <= i of query_weights[j] * values[j]
template <class T>
struct CorrectedRows {
  int first = 0, count = 0;
  const T* weights = nullptr;        // rows of kDeltaBlock, from this k-block on
  const T* query_weights = nullptr;  // the same; null: no results are wanted
  const float *v = nullptr, *beta = nullptr;
  int64_t v_stride = 0, beta_stride = 0;
  int64_t n = 0;                // numbers of v
  const float* read = nullptr;  // [count][width], its rows `stride` apart
  float* results = nullptr;     // the same
  int64_t stride = 0;
  int64_t width = 0;    // a multiple of 16
  T* values = nullptr;  // [width / 16] tiles of a packed weight, k = token
};

// base = round(state), a packed weight with n = value, k = key; padding of k is +0.
template <class T>
struct RoundedState {
  const float* state = nullptr;  // [key_dim][width]
  int64_t width = 0;             // a multiple of 16
  int key_dim = 0, key_blocks = 0;
  T* base = nullptr;
};

// columns[d][token] = round(key d of the token * factors[token])
template <class T>
struct DecayedKeys {
  const T* keys = nullptr;  // a packed weight with n = token of a whole block, k = key
  int key_dim = 0, key_blocks = 0;
  const float* factors = nullptr;  // [kDeltaBlock]
  T* columns = nullptr;            // [key_dim][kDeltaBlock]
};

// Steps over many rows, which only the vector bodies have: ref computes token by token.
template <class T>
struct DeltaBlockKernels {
  void (*decay)(const DecayedRows<T>& rows);
  void (*correct)(const CorrectedRows<T>& rows);
  void (*round_state)(const RoundedState<T>& state);
  void (*decay_keys)(const DecayedKeys<T>& keys);
};

}  // namespace hocket
