// The reference for arithmetic/rows.h: plain loops, straight from the contract.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "compute/kernels/arithmetic/lane.h"
#include "compute/kernels/arithmetic/rows.h"
#include "compute/kernels/ref/delta_rows_ref.h"
#include "compute/kernels/ref/row_sums.h"

namespace hocket::ref {
namespace {

template <class T>
void rms_norm(const float* x, const float* w, int64_t n, float eps, T* y) {
  const float inv = inverse_rms(x, n, eps);
  for (int64_t i = 0; i < n; ++i) y[i] = from_float<T>((x[i] * inv) * w[i]);
}

template <class T>
void swiglu(const float* gate, const float* up, int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = from_float<T>(silu(gate[i]) * up[i]);
}

template <class T>
void glu(const GluRow<T>& row) {
  const Lane limit{row.activation.limit};
  for (int64_t i = 0; i < row.n; ++i) {
    const Lane g{row.gate[i]}, u{row.up[i]};
    switch (row.activation.kind) {
      case Activation::Kind::silu:
        row.y[i] = from_float<T>((math::silu(g) * u).x);
        break;
      case Activation::Kind::limited_silu:
        row.y[i] = from_float<T>(math::limited_silu(g, u, limit).x);
        break;
      case Activation::Kind::limited_gate:
        row.y[i] = from_float<T>(math::limited_gate(g, u, limit).x);
        break;
      case Activation::Kind::gelu_tanh:
        row.y[i] = from_float<T>((math::gelu_tanh(g) * u).x);
        break;
    }
  }
}

template <class T>
void multiply(const T* x, float weight, int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = from_float<T>(to_float(x[i]) * weight);
}

template <class T>
void round(const float* x, int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = from_float<T>(x[i]);
}

template <class T>
void head(const HeadRow<T>& row) {
  const float inv = row.norm == nullptr ? 1 : inverse_rms(row.x, row.dim, row.eps);
  const auto v = [&](int i) {
    return row.norm == nullptr ? row.x[i] : (row.x[i] * inv) * row.norm[i];
  };
  const bool interleaved = row.style == RopeConfig::Style::interleaved;
  const int half = row.rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const int a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + half;
    const float c = row.cos[i], s = row.sin[i];
    row.y[a] = from_float<T>(std::fma(v(a), c, -(v(b) * s)));
    row.y[b] = from_float<T>(std::fma(v(b), c, v(a) * s));
  }
  for (int i = row.rotary_dim; i < row.dim; ++i) row.y[i] = from_float<T>(v(i));
}

template <class T>
float softmax(const SoftmaxRow<T>& row) {
  float m = *row.m;
  for (int j = 0; j < row.visible; ++j) m = larger(m, row.scores[j] * row.scale);
  Sixteen sums{};
  for (int j = 0; j < row.visible; ++j) {
    row.p[j] = from_float<T>(exp(row.scores[j] * row.scale - m));
    sums[j % 16] = sums[j % 16] + to_float(row.p[j]);
  }
  for (int j = row.visible; j % 32 != 0; ++j) row.p[j] = from_float<T>(0);
  const float alpha = exp(*row.m - m);
  *row.l = std::fma(*row.l, alpha, tree_sum(sums));
  *row.m = m;
  return alpha;
}

template <class T>
void divide(const float* o, float l, int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = from_float<T>(o[i] / l + 0.0f);
}

template <class T>
void combine(const CombineRow<T>& row) {
  for (int64_t i = 0; i < row.cols; ++i) {
    float pending[kMaxPendingSums] = {0};
    int num_pending = 0;
    float leaf = 0;
    for (int s = 0; s < row.num_slots; ++s) {
      leaf = std::fma(row.weights[s], to_float(row.y[s][i]), leaf);
      if (row.ends[s] == 0) continue;
      float sum = to_float(from_float<T>(leaf));
      for (int node = 1; node < row.ends[s]; ++node)
        sum = to_float(from_float<T>(pending[--num_pending] + sum));
      pending[num_pending++] = sum;
      leaf = 0;
    }
    float total = pending[0] + 0.0f;  // so that a zero is +0
    total = total * row.scale;
    if (row.shared != nullptr) total = total + row.shared[i];
    row.residual[i] = row.residual[i] + total;
  }
}

template <class T>
void quantize(const QuantizeRow<T>& row) {
  std::fill(row.q, row.q + row.padded, int8_t{0});
  for (int64_t g = 0; g * row.group < row.n; ++g) {
    const int64_t begin = g * row.group, end = std::min(row.n, begin + row.group);
    uint32_t magnitude = 0;  // |x| as an integer has the order of the numbers, NaN on top
    for (int64_t i = begin; i < end; ++i)
      magnitude = std::max(magnitude, std::bit_cast<uint32_t>(to_float(row.x[i])) & 0x7fffffffu);
    const auto amax = std::bit_cast<float>(magnitude);
    int32_t sum = 0;
    row.scales[g] = 0;
    if (!std::isfinite(amax)) {
      row.scales[g] = std::numeric_limits<float>::quiet_NaN();
    } else if (amax >= kMinQuantized) {
      row.scales[g] = amax / 127;
      const float inverse = 127 / amax;
      for (int64_t i = begin; i < end; ++i) {
        row.q[i] = static_cast<int8_t>(std::nearbyint(to_float(row.x[i]) * inverse));
        sum += row.q[i];
      }
    }
    if (row.sums != nullptr) row.sums[g] = sum;
  }
}

template <class T>
void dequantize(const int8_t* q, float scale, int64_t n, T* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = from_float<T>(static_cast<float>(q[i]) * scale);
}

void scale(float alpha, int64_t n, float* o) {
  for (int64_t i = 0; i < n; ++i) o[i] = o[i] * alpha;
}

void soft_cap_row(float scale, float cap, int64_t n, float* x) {
  for (int64_t i = 0; i < n; ++i) x[i] = soft_cap(x[i] * scale, cap);
}

void merge(const SegmentMerge& s) {
  const float m = larger(*s.m, s.m_next);
  const float a = exp(*s.m - m), b = exp(s.m_next - m);
  for (int i = 0; i < s.dim; ++i) s.o[i] = std::fma(s.o_next[i], b, s.o[i] * a);
  *s.l = std::fma(s.l_next, b, *s.l * a);
  *s.m = m;
}

void angles(float position, const float* inv_freq, int n, float factor, float* const out[2]) {
  for (int i = 0; i < n; ++i) {
    const math::SinCos<Lane> r = math::sin_cos(Lane{position * inv_freq[i]});
    out[0][i] = r.cos.x * factor;
    out[1][i] = r.sin.x * factor;
  }
}

// p = exp(x - max); p may be null. Returns the sum.
float exp_sum(const float* x, int64_t n, float max, float* p) {
  Sixteen sums{};
  for (int64_t i = 0; i < n; ++i) {
    const float e = exp(x[i] - max);
    if (p != nullptr) p[i] = e;
    sums[i % 16] = sums[i % 16] + e;
  }
  return tree_sum(sums);
}

void exp_row(const float* x, int64_t n, float max, float* p) {
  exp_sum(x, n, max, p);
}

void row_stats(const float* x, int64_t n, RowStats* stats) {
  stats->max = row_max(x, n);
  stats->finite =
      std::isfinite(stats->max) && std::none_of(x, x + n, [](float v) { return std::isnan(v); });
  if (!stats->finite) return;
  stats->argmax = static_cast<int>(std::find(x, x + n, stats->max) - x);
  stats->logsumexp = stats->max + log(exp_sum(x, n, stats->max, nullptr));
}

// Writes the scores into p. Returns their sum, which is NaN if a logit makes a score NaN.
float scores(const TopKRow& row, float* p) {
  const int n = row.moe->num_experts;
  float sum = 0;
  if (row.moe->score == MoeConfig::Score::softmax) {
    sum = exp_sum(row.logits, n, row_max(row.logits, n), p);
    for (int i = 0; i < n; ++i) p[i] = p[i] / sum;
  } else {
    for (int i = 0; i < n; ++i) p[i] = sigmoid(row.logits[i]);
    for (int i = 0; i < n; ++i) sum = sum + p[i];
  }
  for (int i = 0; i < n; ++i) p[i] = std::isnan(p[i]) ? 0 : p[i];
  return sum;
}

int first_largest(const float* x, int n) {
  return static_cast<int>(std::max_element(x, x + n) - x);
}

float group_score(const float* choice, int n, MoeConfig::GroupScore kind) {
  float best = -math::kInfinity, second = -math::kInfinity;
  for (int i = 0; i < n; ++i) {
    second = std::max(second, std::min(best, choice[i]));
    best = std::max(best, choice[i]);
  }
  return kind == MoeConfig::GroupScore::best ? best : best + second;
}

// Sets the choice scores of all but the best groups to -inf.
void exclude_groups(const MoeConfig& moe, float* choice, float* groups) {
  const int size = moe.num_experts / moe.num_groups;
  for (int g = 0; g < moe.num_groups; ++g)
    groups[g] = std::max(group_score(choice + g * size, size, moe.group_score), kMinChoice);
  for (int i = 0; i < moe.top_groups; ++i)
    groups[first_largest(groups, moe.num_groups)] = -math::kInfinity;
  for (int g = 0; g < moe.num_groups; ++g)
    if (groups[g] != -math::kInfinity)
      std::fill(choice + g * size, choice + (g + 1) * size, -math::kInfinity);
}

void top_k(const TopKRow& row) {
  const MoeConfig& moe = *row.moe;
  const int n = moe.num_experts;
  float* const score = row.scratch;
  float* const choice = score + n;
  const float sum = scores(row, score);
  for (int i = 0; i < n; ++i) {
    const float base = moe.weighted_inputs ? row.logits[i] : score[i];
    choice[i] = row.bias == nullptr ? base : base + row.bias[i];
    if (!(choice[i] > kMinChoice)) choice[i] = kMinChoice;
  }
  if (moe.num_groups > 1) exclude_groups(moe, choice, choice + n);
  float chosen = 0;
  for (int s = 0; s < moe.top_k; ++s) {
    row.ids[s] = first_largest(choice, n);
    row.weights[s] = std::isnan(sum) ? sum : score[row.ids[s]];
    choice[row.ids[s]] = -math::kInfinity;
    chosen = chosen + row.weights[s];
  }
  if (moe.score == MoeConfig::Score::sigmoid) chosen = chosen + kSigmoidSumFloor;
  for (int s = 0; s < moe.top_k; ++s) {
    const float w = moe.norm_topk_prob ? row.weights[s] / chosen : row.weights[s];
    row.weights[s] = w * static_cast<float>(moe.scaling_factor);
  }
}

template <class T>
constexpr ActivationKernels<T> activation() {
  return {rms_norm<T>, swiglu<T>, glu<T>,     multiply<T>, round<T>,     head<T>,
          softmax<T>,  divide<T>, combine<T>, quantize<T>, dequantize<T>};
}

}  // namespace

constinit const RowKernels kRows = {Isa::ref,
                                    activation<Bf16>(),
                                    activation<float>(),
                                    scale,
                                    merge,
                                    soft_cap_row,
                                    angles,
                                    top_k,
                                    row_stats,
                                    exp_row,
                                    delta<Bf16>(),
                                    delta<float>(),
                                    {},
                                    {},
                                    convolve,
                                    decay_gates,
                                    channel_gates};

}  // namespace hocket::ref
