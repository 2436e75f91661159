// The row bodies for 16 lanes V, as row_kernels.h says. A unit for one instruction set defines V in
// an anonymous namespace and takes Rows<V>::table(): nothing here may be emitted as a shared
// symbol, so no inline function of other headers is called.
//
// V has what math.h asks for and (T: float or Bf16; n lanes only, where given):
//   V::load(const T*), V::load(const T*, int n, float fill);  store(T*), store(T*, int n), exact
//   for Bf16 after rounded<T>(); max(a, b) = a > b ? a : b;  sqrt;  sum(), largest(): the tree
//   8-4-2-1;  first();  keep(n, fill);  first_equal(V): a lane, or 16.
#pragma once

#include "compute/kernels/math.h"
#include "compute/kernels/router.h"
#include "compute/kernels/row_kernels.h"
#include "compute/kernels/row_stats.h"

namespace hocket::cpu {

template <class V>
struct Rows {
  struct Whole {};  // all 16 lanes, where a number of lanes would stand

  // Calls f(i, lanes) for the blocks of 16 of [0, n); lanes is Whole or, at the end, a number.
  template <class F>
  static void blocks(int64_t n, F&& f) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) f(i, Whole{});
    if (i < n) f(i, static_cast<int>(n - i));
  }
  // As above, with one function for whole blocks and one for the last.
  template <class F, class G>
  static void blocks(int64_t n, F&& whole, G&& last) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) whole(i, Whole{});
    if (i < n) last(i, static_cast<int>(n - i));
  }

  template <class T>
  static V load(const T* p, Whole, float = 0) {
    return V::load(p);
  }
  template <class T>
  static V load(const T* p, int n, float fill = 0) {
    return V::load(p, n, fill);
  }
  template <class T>
  static V rounded(V x) {
    if constexpr (sizeof(T) == sizeof(float)) {
      return x;
    } else {
      const V odd = and_bits(shift_right<16>(x), V::all_bits(1));
      const V up = add_bits(add_bits(x, V::all_bits(0x7fffu)), odd);
      const V nan = or_bits(x, V::all_bits(0x400000u));
      return and_bits(select(x == x, up, nan), V::all_bits(0xffff0000u));
    }
  }
  template <class T>
  static void store_rounded(V x, T* p, Whole) {
    rounded<T>(x).store(p);
  }
  template <class T>
  static void store_rounded(V x, T* p, int n) {
    rounded<T>(x).store(p, n);
  }

  static V inverse_rms(const float* x, int64_t n, float eps) {
    V squares = V::all(0);
    blocks(n, [&](int64_t i, auto lanes) {
      const V v = load(x + i, lanes);
      squares = fma(v, v, squares);
    });
    const V mean = V::all(squares.sum()) / V::all(static_cast<float>(n));
    return V::all(1) / sqrt(mean + V::all(eps));
  }

  template <class T>
  static void rms_norm(const float* x, const float* w, int64_t n, float eps, T* y) {
    const V inv = inverse_rms(x, n, eps);
    blocks(n, [&](int64_t i, auto lanes) {
      store_rounded((load(x + i, lanes) * inv) * load(w + i, lanes), y + i, lanes);
    });
  }

  template <class T>
  static void swiglu(const float* gate, const float* up, int64_t n, T* y) {
    blocks(n, [&](int64_t i, auto lanes) {
      store_rounded(math::silu(load(gate + i, lanes)) * load(up + i, lanes), y + i, lanes);
    });
  }

  template <class T>
  static void round(const float* x, int64_t n, T* y) {
    blocks(n, [&](int64_t i, auto lanes) { store_rounded(load(x + i, lanes), y + i, lanes); });
  }

  template <class T>
  static void head(const HeadRow<T>& row) {
    const bool norm = row.norm != nullptr;
    const V inv = norm ? inverse_rms(row.x, row.dim, row.eps) : V::all(1);
    const auto value = [&](int64_t i, auto lanes) {
      const V v = load(row.x + i, lanes);
      return norm ? (v * inv) * load(row.norm + i, lanes) : v;
    };
    const int64_t half = row.rotary_dim / 2;
    blocks(half, [&](int64_t i, auto lanes) {
      const V a = value(i, lanes), b = value(i + half, lanes);
      const V cos = load(row.cos + i, lanes), sin = load(row.sin + i, lanes);
      store_rounded(fma(a, cos, negative(b * sin)), row.y + i, lanes);
      store_rounded(fma(b, cos, a * sin), row.y + i + half, lanes);
    });
    const int64_t rest = row.rotary_dim;
    blocks(row.dim - rest, [&](int64_t i, auto lanes) {
      store_rounded(value(rest + i, lanes), row.y + rest + i, lanes);
    });
  }
  static V negative(V x) { return xor_bits(x, V::all_bits(0x80000000u)); }

  template <class T>
  static float softmax(const SoftmaxRow<T>& row) {
    const V scale = V::all(row.scale);
    V largest = V::all(-math::kInfinity);
    blocks(row.visible, [&](int64_t i, auto lanes) {
      largest = max(load(row.scores + i, lanes, -math::kInfinity) * scale, largest);
    });
    const V m = max(V::all(*row.m), V::all(largest.largest()));
    const V alpha = math::exp(V::all(*row.m) - m);
    V sum = V::all(0);
    blocks(
        row.visible,
        [&](int64_t i, Whole) {
          const V p = rounded<T>(math::exp(V::load(row.scores + i) * scale - m));
          p.store(row.p + i);
          sum = sum + p;
        },
        [&](int64_t i, int lanes) {
          const V s = V::load(row.scores + i, lanes, 0) * scale;
          const V p = rounded<T>(math::exp(s - m)).keep(lanes, 0);
          p.store(row.p + i);
          sum = sum + p;
        });
    const int written = (row.visible + 15) / 16 * 16;
    if (written % 32 != 0) V::all(0).store(row.p + written);
    *row.m = m.first();
    *row.l = fma(V::all(*row.l), alpha, V::all(sum.sum())).first();
    return alpha.first();
  }
  template <class T>
  static void divide(const float* o, float l, int64_t n, T* y) {
    blocks(n, [&](int64_t i, auto lanes) {
      store_rounded(load(o + i, lanes) / V::all(l) + V::all(0), y + i, lanes);
    });
  }

  template <class T>
  static void combine(const CombineRow<T>& row) {
    blocks(row.cols, [&](int64_t i, auto lanes) {
      V group = V::all(0), total = V::all(0);
      for (int s = 0; s < row.num_slots; ++s) {
        group = fma(V::all(row.weights[s]), load(row.y[s] + i, lanes), group);
        if (!row.closes[s]) continue;
        total = total + rounded<T>(group);
        group = V::all(0);
      }
      store_rounded(load(row.residual + i, lanes) + total, row.residual + i, lanes);
    });
  }

  static void scale(float alpha, int64_t n, float* o) {
    blocks(n, [&](int64_t i, auto lanes) {
      store_rounded(load(o + i, lanes) * V::all(alpha), o + i, lanes);
    });
  }

  static void merge(const SegmentMerge& s) {
    const V m = max(V::all(*s.m), V::all(s.m_next));
    const V a = math::exp(V::all(*s.m) - m), b = math::exp(V::all(s.m_next) - m);
    *s.m = m.first();
    *s.l = fma(V::all(s.l_next), b, V::all(*s.l) * a).first();
    blocks(s.dim, [&](int64_t i, auto lanes) {
      store_rounded(fma(load(s.o_next + i, lanes), b, load(s.o + i, lanes) * a), s.o + i, lanes);
    });
  }

  static void angles(float position, const float* inv_freq, int n, float factor,
                     float* const out[2]) {
    blocks(n, [&](int64_t i, auto lanes) {
      const math::SinCos<V> r = math::sin_cos(V::all(position) * load(inv_freq + i, lanes));
      store_rounded(r.cos * V::all(factor), out[0] + i, lanes);
      store_rounded(r.sin * V::all(factor), out[1] + i, lanes);
    });
  }

  static float row_max(const float* x, int64_t n) {
    V largest = V::all(-math::kInfinity);
    blocks(n, [&](int64_t i, auto lanes) {
      largest = max(load(x + i, lanes, -math::kInfinity), largest);
    });
    return largest.largest();
  }
  // Lowest index of an element equal to `value`, or n.
  static int64_t find(const float* x, int64_t n, float value) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
      const int lane = V::load(x + i).first_equal(V::all(value));
      if (lane < 16) return i + lane;
    }
    for (; i < n; ++i)
      if (x[i] == value) return i;
    return n;
  }
  // p = exp(x - max), p null: not stored. Returns the sum.
  static float exp_sum(const float* x, int64_t n, float max_x, float* p) {
    V sum = V::all(0);
    blocks(
        n,
        [&](int64_t i, Whole) {
          const V e = math::exp(V::load(x + i) - V::all(max_x));
          sum = sum + e;
          if (p != nullptr) e.store(p + i);
        },
        [&](int64_t i, int lanes) {
          const V e = math::exp(V::load(x + i, lanes, 0) - V::all(max_x)).keep(lanes, 0);
          sum = sum + e;
          if (p != nullptr) e.store(p + i, lanes);
        });
    return sum.sum();
  }
  static void exp_row(const float* x, int64_t n, float max_x, float* p) { exp_sum(x, n, max_x, p); }

  static void row_stats(const float* x, int64_t n, RowStats* stats) {
    const float largest = row_max(x, n);
    const float sum = exp_sum(x, n, largest, nullptr);
    stats->max = largest;
    stats->finite = -math::kInfinity < largest && largest < math::kInfinity && sum == sum;
    if (!stats->finite) return;
    stats->argmax = static_cast<int>(find(x, n, largest));
    stats->logsumexp = largest + math::log(V::all(sum)).first();
  }

  static void top_k(const TopKRow& row) {
    const int n = row.moe->num_experts, k = row.moe->top_k;
    float* p = row.scratch;
    const float sum = exp_sum(row.logits, n, row_max(row.logits, n), p);
    blocks(n, [&](int64_t i, auto lanes) {
      const V q = load(p + i, lanes) / V::all(sum);
      store_rounded(select(q == q, q, V::all(0)), p + i, lanes);
    });
    float chosen = 0;
    for (int s = 0; s < k; ++s) {
      const float best = row_max(p, n);
      const int64_t id = find(p, n, best);
      row.ids[s] = static_cast<int32_t>(id);
      row.weights[s] = sum == sum ? best : sum;
      p[id] = -1;
      chosen = chosen + row.weights[s];
    }
    if (row.moe->norm_topk_prob)
      for (int s = 0; s < k; ++s) row.weights[s] = row.weights[s] / chosen;
  }

  template <class T>
  static constexpr ActivationKernels<T> activation() {
    return {rms_norm<T>, swiglu<T>, round<T>, head<T>, softmax<T>, divide<T>, combine<T>, nullptr};
  }
  static constexpr RowKernels table(Isa isa) {
    return {isa,    activation<Bf16>(), activation<float>(), scale, merge, angles, top_k, row_stats,
            exp_row};
  }
};

}  // namespace hocket::cpu
