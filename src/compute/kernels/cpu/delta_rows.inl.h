// The bodies of delta_rows.h for 16 lanes V, in the manner of rows.inl.h.
#pragma once

#include "compute/kernels/arithmetic/delta_rows.h"
#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/cpu/rows.inl.h"
#include "core/state_slot.h"

namespace hocket::cpu {

template <class V>
struct DeltaRows {
  using R = Rows<V>;

  // Takes row after row, sixteen channels at a time, so that each input is read once. The rows lie
  // far apart, so the lines of the channels to come are fetched ahead.
  static void convolve(const Convolution& call) {
    constexpr int64_t kAhead = 48;
    R::blocks(call.n, [&](int64_t i, auto lanes) {
      const auto tap = [&](int t) { return R::load(call.taps + t * call.step + i, lanes); };
      const V first = tap(0), second = tap(1), third = tap(2), fourth = tap(3);
      V a = R::load(call.before[0] + i, lanes), b = R::load(call.before[1] + i, lanes);
      V c = R::load(call.before[2] + i, lanes);
      const float* x = call.x + i;
      float* y = call.y + i;
      const bool more = i + kAhead < call.n;
      for (int64_t row = 0; row < call.rows; ++row, x += call.x_stride, y += call.y_stride) {
        if (more) __builtin_prefetch(x + kAhead, 0, 2);
        const V d = R::load(x, lanes);
        const V sum = fma(d, fourth, fma(c, third, fma(b, second, a * first)));
        R::store_rounded(math::silu(sum), y, lanes);
        a = b;
        b = c;
        c = d;
      }
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
  static void channel_decay(const ChannelDecay<T>& row) {
    R::blocks(row.n, [&](int64_t i, auto lanes) {
      V sum = R::load(row.sums + i, lanes);
      if (row.from != nullptr) sum = sum - R::load(row.from + i, lanes);
      R::store_rounded(R::load(row.x + i, lanes) * math::exp(sum), row.y + i, lanes);
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

  // A line of a tile: two neighbouring k of sixteen columns.
  template <class T>
  static void load_line(const T* line, V& even, V& odd) {
    if constexpr (sizeof(T) == sizeof(float)) {
      float halves[2][16];
      for (int i = 0; i < 16; ++i) halves[0][i] = line[2 * i], halves[1][i] = line[2 * i + 1];
      even = V::load(halves[0]);
      odd = V::load(halves[1]);
    } else {
      const V both = V::load(reinterpret_cast<const float*>(line));
      even = shift_left<16>(both);
      odd = and_bits(both, V::all_bits(0xffff0000u));
    }
  }
  // Both are rounded.
  template <class T>
  static void store_line(V even, V odd, T* line) {
    if constexpr (sizeof(T) == sizeof(float)) {
      float halves[2][16];
      even.store(halves[0]);
      odd.store(halves[1]);
      for (int i = 0; i < 16; ++i) line[2 * i] = halves[0][i], line[2 * i + 1] = halves[1][i];
    } else {
      or_bits(shift_right<16>(even), odd).store(reinterpret_cast<float*>(line));
    }
  }

  template <class T>
  static void decay(const DecayedRows<T>& rows) {
    for (int row = 0; row < rows.count; ++row) {
      const int token = rows.first + row, query = rows.count + row;
      const V sum = V::all(rows.sums[token]), factor = math::exp(sum);
      for (const int64_t at : {row * rows.stride, query * rows.stride})
        for (int64_t i = 0; i < rows.width; i += 16)
          (V::load(rows.products + at + i) * factor).store(rows.products + at + i);
      for (int i = 0; i < kDeltaBlock; i += 16) {
        const V decay = i > token ? V::all(0) : math::exp(sum - V::load(rows.sums + i));
        for (const int of : {row, query}) {
          const int64_t at = int64_t{of} * kDeltaBlock + i;
          const int count = (of == row ? token : token + 1) - i;
          const V weight = R::template rounded<T>(V::load(rows.scores + at) * decay);
          (count <= 0 ? V::all(0) : weight.keep(count < 16 ? count : 16, 0))
              .store(rows.weights + at);
        }
      }
    }
  }

  // A row's k-block of sums, by FMA: those over even and over odd tokens.
  template <int N>
  struct Sums {
    V even[N], odd[N];
  };
  // Adds the values of tokens [0, count) times their weights. The other tokens of the k-block have
  // the weight +0 and are not multiplied: they would change a sum of -0 to +0, and nothing else.
  template <int N, class T>
  static void add_known(const float (&known)[N][kBlockK][16], int count, const T* weights,
                        Sums<N>& sums) {
    float w[kBlockK];
    for (int j = 0; j < kBlockK; j += 16) V::load(weights + j).store(w + j);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums.even[n] = sums.odd[n] = V::all(0);
    for (int j = 0; j < count; j += 2) {
      const V even = V::all(w[j]), odd = V::all(w[j + 1]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        sums.even[n] = fma(even, V::load(known[n][j]), sums.even[n]);
        sums.odd[n] = fma(odd, V::load(known[n][j + 1]), sums.odd[n]);
      }
    }
    const V zero = V::all(0);
    if (count == kBlockK) return;
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) sums.odd[n] = sums.odd[n] + zero;
  }

  // Computes N panels of values at a time, since each token waits for the value of the one before
  // it. Values lie in lines of two tokens: behind an even one is +0 until the odd one is computed.
  template <int N, class T>
  static void correct_panels(const CorrectedRows<T>& rows, int panel) {
    alignas(64) float known[N][kBlockK][16];
    T* const tiles = rows.values + int64_t{panel} * kTileElements;
    for (int n = 0; n < N; ++n)
      for (int j = 0; j < rows.first; j += 2) {
        V even, odd;
        load_line(tiles + n * kTileElements + j * 16, even, odd);
        even.store(known[n][j]);
        odd.store(known[n][j + 1]);
      }
    for (int row = 0; row < rows.count; ++row) {
      const int token = rows.first + row;
      const V beta = V::all(rows.beta[row * rows.beta_stride]);
      const float* const v = rows.v + row * rows.v_stride + panel * 16;
      Sums<N> sums;
      add_known(known, token, rows.weights + int64_t{row} * kDeltaBlock, sums);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        const int64_t remaining = rows.n - (panel + n) * 16,
                      at = row * rows.stride + (panel + n) * 16;
        const int lanes = remaining < 16 ? static_cast<int>(remaining) : 16;
        const V r = V::load(rows.read + at) + (sums.even[n] + sums.odd[n]);
        const V wanted = lanes == 16 ? V::load(v + n * 16) : V::load(v + n * 16, lanes, 0);
        V value = R::template rounded<T>(beta * (wanted - r));
        if (lanes < 16) value = value.keep(lanes, 0);
        value.store(known[n][token]);
        T* const line = tiles + n * kTileElements + token / 2 * 32;
        if (token % 2 == 0) {
          V::all(0).store(known[n][token + 1]);
          store_line(value, V::all(0), line);
        } else {
          store_line(V::load(known[n][token - 1]), value, line);
        }
      }
      if (rows.query_weights == nullptr) continue;
      add_known(known, token + 1, rows.query_weights + int64_t{row} * kDeltaBlock, sums);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        float* const result = rows.results + row * rows.stride + (panel + n) * 16;
        (V::load(result) + (sums.even[n] + sums.odd[n])).store(result);
      }
    }
  }
  // The same for one token: each value is loaded once for its key and its query. The key's weights
  // are +0 from the token itself on. +0 is added to the sums over odd tokens as in add_known().
  template <int N, class T>
  static void correct_one(const CorrectedRows<T>& rows, int panel) {
    const int token = rows.first;
    T* const tiles = rows.values + int64_t{panel} * kTileElements;
    float w[kBlockK], u[kBlockK];
    for (int j = 0; j < kBlockK; j += 16) {
      V::load(rows.weights + j).store(w + j);
      V::load(rows.query_weights + j).store(u + j);
    }
    Sums<N> keys, queries;
    V before[N];  // the value before the token, where they share a line
    const V zero = V::all(0);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n)
      before[n] = keys.even[n] = keys.odd[n] = queries.even[n] = queries.odd[n] = zero;
    int j = 0;
    for (; j + 1 < token; j += 2) {
      const V even_w = V::all(w[j]), odd_w = V::all(w[j + 1]);
      const V even_u = V::all(u[j]), odd_u = V::all(u[j + 1]);
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) {
        V even, odd;
        load_line(tiles + n * kTileElements + j * 16, even, odd);
        keys.even[n] = fma(even_w, even, keys.even[n]);
        keys.odd[n] = fma(odd_w, odd, keys.odd[n]);
        queries.even[n] = fma(even_u, even, queries.even[n]);
        queries.odd[n] = fma(odd_u, odd, queries.odd[n]);
      }
    }
    const bool second = j < token;
    const V beta = V::all(rows.beta[0]), own = V::all(u[token]);
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      T* const line = tiles + n * kTileElements + j * 16;
      if (second) {
        V odd;
        load_line(line, before[n], odd);
        keys.even[n] = fma(V::all(w[j]), before[n], keys.even[n]);
        queries.even[n] = fma(V::all(u[j]), before[n], queries.even[n]);
      }
      const int64_t at = (panel + n) * 16, remaining = rows.n - at;
      const int lanes = remaining < 16 ? static_cast<int>(remaining) : 16;
      const V r = V::load(rows.read + at) + (keys.even[n] + (keys.odd[n] + zero));
      const V wanted = lanes == 16 ? V::load(rows.v + at) : V::load(rows.v + at, lanes, 0);
      V value = R::template rounded<T>(beta * (wanted - r));
      if (lanes < 16) value = value.keep(lanes, 0);
      store_line(second ? before[n] : value, second ? value : zero, line);
      V& sum = second ? queries.odd[n] : queries.even[n];
      sum = fma(own, value, sum);
      if (token + 1 < kBlockK) queries.odd[n] = queries.odd[n] + zero;
      (V::load(rows.results + at) + (queries.even[n] + queries.odd[n])).store(rows.results + at);
    }
  }

  template <class T>
  static void correct(const CorrectedRows<T>& rows) {
    const bool one = rows.count == 1 && rows.query_weights != nullptr;
    const int panels = static_cast<int>(rows.width / 16);
    int panel = 0;
    for (; panel + 4 <= panels; panel += 4)
      one ? correct_one<4>(rows, panel) : correct_panels<4>(rows, panel);
    for (; panel < panels; ++panel)
      one ? correct_one<1>(rows, panel) : correct_panels<1>(rows, panel);
  }

  template <class T>
  static void round_state(const RoundedState<T>& state) {
    T* to = state.base;
    for (int64_t panel = 0; panel < state.width; panel += 16)
      for (int k = 0; k < state.key_blocks * kBlockK; k += 2, to += 32) {
        const float* const from = state.state + k * state.width + panel;
        const auto row = [&](int i) {
          return k + i < state.key_dim ? R::template rounded<T>(V::load(from + i * state.width))
                                       : V::all(0);
        };
        store_line(row(0), row(1), to);
      }
  }

  template <class T>
  static void decay_keys(const DecayedKeys<T>& keys) {
    for (int token = 0; token < kDeltaBlock; token += 16) {
      const V factors = V::load(keys.factors + token);
      const T* from = keys.keys + int64_t{token} * keys.key_blocks * kBlockK;
      for (int d = 0; d < keys.key_dim; d += 2, from += 32) {
        V even, odd;
        load_line(from, even, odd);
        T* const to = keys.columns + int64_t{d} * kDeltaBlock + token;
        R::template rounded<T>(even * factors).store(to);
        if (d + 1 < keys.key_dim) R::template rounded<T>(odd * factors).store(to + kDeltaBlock);
      }
    }
  }

  template <class T>
  static constexpr DeltaKernels<T> table() {
    return {unit<T>, channel_decay<T>, gated_norm<T>, sigmoid_gate<T>};
  }
  template <class T>
  static constexpr DeltaBlockKernels<T> block_table() {
    return {decay<T>, correct<T>, round_state<T>, decay_keys<T>};
  }
};

}  // namespace hocket::cpu
