// The row bodies for 16 lanes V, as arithmetic/rows.h defines them. A unit for one instruction set
// defines V in an anonymous namespace and takes Rows<V>::table(): nothing here may be emitted as a
// shared symbol, so no inline function of other headers is called.
//
// V must have all that math.h asks for, and (T: float or Bf16; with n, only the first n lanes):
//   V::load(const T*), V::load(const T*, int n, float fill);  store(T*), store(T*, int n), exact
//   for Bf16 after rounded<T>(); max(a, b) = a > b ? a : b;  sqrt;  sum(), largest(): the tree
//   8-4-2-1;  first();  keep(n, fill);  first_equal(V): a lane, or 16.
//   Neighbouring lanes: load_doubled(const float* p, int n): p[i / 2], nothing past p[(n - 1) / 2];
//   swap_neighbours(a);  fma_sub_add(a, b, c): fma(a, b, -c) in even lanes, fma(a, b, c) in odd.
//   Lanes as int32: max_bits(a, b);  largest_bits(): the largest, as a float;  sum_bits();
//   store_bytes(int8_t*), store_bytes(int8_t*, int n) of lanes in [-128, 127], V::load_bytes.
#pragma once

#include "compute/kernels/arithmetic/math.h"
#include "compute/kernels/arithmetic/rows.h"

namespace hocket::cpu {

template <class V>
struct Rows {
  struct FullBlock {};  // the lane count of a full block: 16, known at compile time

  // Calls f(i, lanes) for the blocks of 16 of [0, n); lanes is FullBlock or, at the end, a count.
  template <class F>
  static void blocks(int64_t n, F&& f) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) f(i, FullBlock{});
    if (i < n) f(i, static_cast<int>(n - i));
  }
  // Like above, with one function for whole blocks and one for the last.
  template <class F, class G>
  static void blocks(int64_t n, F&& whole, G&& last) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) whole(i, FullBlock{});
    if (i < n) last(i, static_cast<int>(n - i));
  }

  template <class T>
  static V load(const T* p, FullBlock, float = 0) {
    return V::load(p);
  }
  template <class T>
  static V load(const T* p, int n, float fill = 0) {
    return V::load(p, n, fill);
  }
  static V load_doubled(const float* p, FullBlock) { return V::load_doubled(p, 16); }
  static V load_doubled(const float* p, int n) { return V::load_doubled(p, n); }
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
  static void store_rounded(V x, T* p, FullBlock) {
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
  static void glu(const GluRow<T>& row) {
    const V limit = V::all(row.activation.limit);
    blocks(row.n, [&](int64_t i, auto lanes) {
      const V g = load(row.gate + i, lanes), u = load(row.up + i, lanes);
      V y = V::all(0);
      switch (row.activation.kind) {
        case Activation::Kind::silu:
          y = math::silu(g) * u;
          break;
        case Activation::Kind::limited_silu:
          y = math::limited_silu(g, u, limit);
          break;
        case Activation::Kind::limited_gate:
          y = math::limited_gate(g, u, limit);
          break;
        case Activation::Kind::gelu_tanh:
          y = math::gelu_tanh(g) * u;
          break;
      }
      store_rounded(y, row.y + i, lanes);
    });
  }

  template <class T>
  static void multiply(const T* x, float weight, int64_t n, T* y) {
    blocks(n, [&](int64_t i, auto lanes) {
      store_rounded(load(x + i, lanes) * V::all(weight), y + i, lanes);
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
    const int64_t half = row.rotary_dim / 2, rest = row.rotary_dim;
    if (row.style == RopeConfig::Style::interleaved) {
      // Neighbours are swapped, and cos and sin doubled: even lanes compute a, odd lanes b.
      blocks(rest, [&](int64_t i, auto lanes) {
        const V v = value(i, lanes);
        const V cos = load_doubled(row.cos + i / 2, lanes);
        const V sin = load_doubled(row.sin + i / 2, lanes);
        store_rounded(fma_sub_add(v, cos, swap_neighbours(v) * sin), row.y + i, lanes);
      });
    } else {
      blocks(half, [&](int64_t i, auto lanes) {
        const V a = value(i, lanes), b = value(i + half, lanes);
        const V cos = load(row.cos + i, lanes), sin = load(row.sin + i, lanes);
        store_rounded(fma(a, cos, negative(b * sin)), row.y + i, lanes);
        store_rounded(fma(b, cos, a * sin), row.y + i + half, lanes);
      });
    }
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
        [&](int64_t i, FullBlock) {
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

  // Full blocks are summed several at a time, so that no sum waits for the one before it.
  template <class T>
  static void combine(const CombineRow<T>& row) {
    int64_t i = 0;
    if (has_plain_nans(row))
      for (; i + 16 * kCombined <= row.cols; i += 16 * kCombined)
        combine_blocks<T, kCombined, true>(row, i, FullBlock{});
    for (; i + 16 <= row.cols; i += 16) combine_blocks<T, 1, false>(row, i, FullBlock{});
    if (i < row.cols) combine_blocks<T, 1, false>(row, i, static_cast<int>(row.cols - i));
  }
  static constexpr int kCombined = 4;  // blocks at a time
  // Returns true if the lower half of every sum that is NaN will be zero. Such a sum has the upper
  // half of an operand or of the default NaN; only weights may be NaN with another lower half.
  template <class T>
  static bool has_plain_nans(const CombineRow<T>& row) {
    for (int s = 0; s < row.num_slots; ++s)
      if (row.weights[s] != row.weights[s]) return false;
    return true;
  }
  // Like rounded<T>(); with plain_nans, NaNs need no care.
  template <class T, bool plain_nans>
  static V rounded_sum(V x) {
    if constexpr (plain_nans && sizeof(T) != sizeof(float)) {
      const V odd = and_bits(shift_right<16>(x), V::all_bits(1));
      return and_bits(add_bits(add_bits(x, V::all_bits(0x7fffu)), odd), V::all_bits(0xffff0000u));
    } else {
      return rounded<T>(x);
    }
  }
  template <int count, class F>
  static void each_block(F&& f) {
#pragma GCC unroll 4
    for (int b = 0; b < count; ++b) f(b);
  }
  template <class T, int count, bool plain_nans, class Count>
  static void combine_blocks(const CombineRow<T>& row, int64_t i, Count lanes) {
    V pending[kMaxPendingSums][count], sum[count];
    int num_pending = 0;
    each_block<count>([&](int b) { pending[0][b] = sum[b] = V::all(0); });
    for (int s = 0; s < row.num_slots; ++s) {
      const V weight = V::all(row.weights[s]);
      const T* const y = row.y[s] + i;
      each_block<count>([&](int b) { sum[b] = fma(weight, load(y + 16 * b, lanes), sum[b]); });
      if (row.ends[s] == 0) continue;
      each_block<count>([&](int b) { sum[b] = rounded_sum<T, plain_nans>(sum[b]); });
      for (int node = 1; node < row.ends[s]; ++node) {
        const V* const left = pending[--num_pending];
        each_block<count>([&](int b) { sum[b] = rounded_sum<T, plain_nans>(left[b] + sum[b]); });
      }
      V* const to = pending[num_pending++];
      each_block<count>([&](int b) {
        to[b] = sum[b];
        sum[b] = V::all(0);
      });
    }
    each_block<count>([&](int b) {
      const int64_t at = i + 16 * b;
      V total = (pending[0][b] + V::all(0)) * V::all(row.scale);
      if (row.shared != nullptr) total = total + load(row.shared + at, lanes);
      store_rounded(load(row.residual + at, lanes) + total, row.residual + at, lanes);
    });
  }

  template <class T>
  static void quantize(const QuantizeRow<T>& row) {
    for (int64_t g = 0, begin = 0; begin < row.n; ++g, begin += row.group) {
      const int64_t n = row.n - begin < row.group ? row.n - begin : row.group;
      const int32_t sum = quantize_group(row.x + begin, n, row.q + begin, row.scales + g);
      if (row.sums != nullptr) row.sums[g] = sum;
    }
    __builtin_memset(row.q + row.n, 0, row.padded - row.n);
  }
  // Returns the sum of the group's q.
  template <class T>
  static int32_t quantize_group(const T* x, int64_t n, int8_t* q, float* scale) {
    // |x| as an integer has the order of the numbers, with NaN on top.
    V magnitude = V::all(0);
    blocks(n, [&](int64_t i, auto lanes) {
      magnitude = max_bits(and_bits(load(x + i, lanes), V::all_bits(0x7fffffffu)), magnitude);
    });
    const float amax = magnitude.largest_bits();
    if (!(kMinQuantized <= amax && amax < math::kInfinity)) {
      __builtin_memset(q, 0, n);
      *scale = amax < kMinQuantized ? 0 : __builtin_nanf("");
      return 0;
    }
    *scale = amax / 127;
    const V inverse = V::all(127 / amax);
    V sum = V::all_bits(0);
    blocks(n, [&](int64_t i, auto lanes) {
      // The low bits of t are the integer; those of kRoundToInt are zero.
      const V t = load(x + i, lanes) * inverse + V::all(math::kRoundToInt);
      const V integer = add_bits(t, V::all_bits(0u - 0x4b400000u));
      store_bytes(integer, q + i, lanes);
      sum = add_bits(sum, integer);
    });
    return sum.sum_bits();
  }
  template <class T>
  static void dequantize(const int8_t* q, float scale, int64_t n, T* x) {
    const V all = V::all(scale);
    blocks(n, [&](int64_t i, auto lanes) {
      store_rounded(from_int(load_bytes(q + i, lanes)) * all, x + i, lanes);
    });
  }
  static V load_bytes(const int8_t* p, FullBlock) { return V::load_bytes(p); }
  static V load_bytes(const int8_t* p, int n) { return V::load_bytes(p, n); }
  static void store_bytes(V x, int8_t* p, FullBlock) { x.store_bytes(p); }
  static void store_bytes(V x, int8_t* p, int n) { x.store_bytes(p, n); }

  static void scale(float alpha, int64_t n, float* o) {
    blocks(n, [&](int64_t i, auto lanes) {
      store_rounded(load(o + i, lanes) * V::all(alpha), o + i, lanes);
    });
  }

  static void soft_cap(float scale, float cap, int64_t n, float* x) {
    blocks(n, [&](int64_t i, auto lanes) {
      store_rounded(math::soft_cap(load(x + i, lanes) * V::all(scale), V::all(cap)), x + i, lanes);
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
  // Returns the lowest index of an element equal to `value`, or n.
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
  // p = exp(x - max); p may be null. Returns the sum.
  static float exp_sum(const float* x, int64_t n, float max_x, float* p) {
    V sum = V::all(0);
    blocks(
        n,
        [&](int64_t i, FullBlock) {
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

  // Writes the scores into p. Returns a sum of them, which is NaN if a logit makes a score NaN.
  static float scores(const TopKRow& row, float* p) {
    const int n = row.moe->num_experts;
    const bool softmax = row.moe->score == MoeConfig::Score::softmax;
    const float sum = softmax ? exp_sum(row.logits, n, row_max(row.logits, n), p) : 1;
    V nan_sum = V::all(sum);  // becomes NaN at the first NaN score
    blocks(n, [&](int64_t i, auto lanes) {
      const V q =
          softmax ? load(p + i, lanes) / V::all(sum) : math::sigmoid(load(row.logits + i, lanes));
      nan_sum = nan_sum + q;
      store_rounded(select(q == q, q, V::all(0)), p + i, lanes);
    });
    return nan_sum.sum();
  }

  static float group_score(float* choice, int n, MoeConfig::GroupScore kind) {
    const float best = row_max(choice, n);
    if (kind == MoeConfig::GroupScore::best) return best;
    const int64_t at = find(choice, n, best);
    choice[at] = -math::kInfinity;
    const float second = row_max(choice, n);
    choice[at] = best;
    return best + second;
  }
  // Sets the choice scores of all but the best groups to -inf.
  static void exclude_groups(const MoeConfig& moe, float* choice, float* groups) {
    const int size = moe.num_experts / moe.num_groups;
    for (int g = 0; g < moe.num_groups; ++g) {
      const float score = group_score(choice + g * size, size, moe.group_score);
      groups[g] = score > kMinChoice ? score : kMinChoice;
    }
    for (int i = 0; i < moe.top_groups; ++i)
      groups[find(groups, moe.num_groups, row_max(groups, moe.num_groups))] = -math::kInfinity;
    for (int g = 0; g < moe.num_groups; ++g) {
      if (groups[g] == -math::kInfinity) continue;
      for (int i = g * size; i < (g + 1) * size; ++i) choice[i] = -math::kInfinity;
    }
  }

  static void top_k(const TopKRow& row) {
    const MoeConfig& moe = *row.moe;
    const int n = moe.num_experts;
    float* const score = row.scratch;
    float* const choice = score + n;
    const float sum = scores(row, score);
    blocks(n, [&](int64_t i, auto lanes) {
      const V s = load((moe.weighted_inputs ? row.logits : score) + i, lanes);
      const V c = row.bias == nullptr ? s : s + load(row.bias + i, lanes);
      store_rounded(max(c, V::all(kMinChoice)), choice + i, lanes);
    });
    if (moe.num_groups > 1) exclude_groups(moe, choice, choice + n);
    float chosen = 0;
    for (int s = 0; s < moe.top_k; ++s) {
      const int64_t id = find(choice, n, row_max(choice, n));
      row.ids[s] = static_cast<int32_t>(id);
      row.weights[s] = sum == sum ? score[id] : sum;
      choice[id] = -math::kInfinity;
      chosen = chosen + row.weights[s];
    }
    if (moe.score == MoeConfig::Score::sigmoid) chosen = chosen + kSigmoidSumFloor;
    for (int s = 0; s < moe.top_k; ++s) {
      const float w = moe.norm_topk_prob ? row.weights[s] / chosen : row.weights[s];
      row.weights[s] = w * static_cast<float>(moe.scaling_factor);
    }
  }

  template <class T>
  static constexpr ActivationKernels<T> activation() {
    return {rms_norm<T>, swiglu<T>, glu<T>,     multiply<T>, round<T>,     head<T>,
            softmax<T>,  divide<T>, combine<T>, quantize<T>, dequantize<T>};
  }
  template <class D>  // DeltaRows<V>
  static constexpr RowKernels table(Isa isa) {
    return {isa,
            activation<Bf16>(),
            activation<float>(),
            scale,
            merge,
            soft_cap,
            angles,
            top_k,
            row_stats,
            exp_row,
            D::template table<Bf16>(),
            D::template table<float>(),
            D::template block_table<Bf16>(),
            D::template block_table<float>(),
            D::convolve,
            D::decay_gates,
            D::channel_gates};
  }
};

}  // namespace hocket::cpu
