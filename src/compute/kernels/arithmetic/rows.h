// The row bodies: all arithmetic except the canonical product, as one table per instruction set.
// The operations (norm.h, attention.h, ...) split the work and call these; all tables give the same
// bits.
//
// Sums over a row run in 16 lanes (element i in lane i mod 16), then the tree 8-4-2-1; exp, log,
// sin, cos are those of math.h. "round" is to nearest even in bf16 and nothing in fp32. Pointers
// may be unaligned; nothing past n is read or written. Thread: any worker, with FTZ and DAZ set.
// Errors: none.   Source: docs/contracts/arithmetic.md.
#pragma once

#include <cstdint>
#include <limits>

#include "base/machine.h"
#include "compute/kernels/arithmetic/delta_rows.h"
#include "compute/tensor/bf16.h"
#include "core/model_config.h"

namespace hocket {

// Statistics of a row of logits that the sampler needs.
struct RowStats {
  float max = 0;
  int argmax = 0;  // lowest index of the largest entry
  float logsumexp = 0;
  // False if any entry is NaN or +inf, or all are -inf; the other fields are then undefined.
  bool finite = false;
};

// One head of q or k: v = norm ? (x * inv) * norm : x, with inv as in rms_norm; then the rotation
// of v[0, rotary_dim). Pair i is (a, b) = (i, i + rotary_dim / 2) in half style, (2i, 2i + 1)
// interleaved:  y[a] = fma(v[a], cos[i], -(v[b] * sin[i])), y[b] = fma(v[b], cos[i], v[a] *
// sin[i]). Other elements are not rotated. One rounding at the end.
template <class T>
struct HeadRow {
  const float* x = nullptr;  // [dim]
  int dim = 0;
  const float* norm = nullptr;  // [dim] or null
  float eps = 0;
  const float* cos = nullptr;  // [rotary_dim / 2]
  const float* sin = nullptr;
  int rotary_dim = 0;
  RopeConfig::Style style{};
  T* y = nullptr;  // [dim]
};

// One query against the first `visible` keys of a softmax block: s = scores * scale; m' = max(m,
// max s); alpha = exp(m - m'); p = round(exp(s - m')), and +0 from `visible` up to the next
// multiple of 32;  l = fma(l, alpha, sum16(p)).
template <class T>
struct SoftmaxRow {
  const float* scores = nullptr;  // canonical(q, k); undefined from `visible` on
  int visible = 0;                // 1..128
  float scale = 1;
  float* m = nullptr;  // updated; -inf before a segment's first block
  float* l = nullptr;  // updated
  T* p = nullptr;      // [round_up(visible, 32)]
};

// Merges a segment's state into that of the segments before it:  m' = max(m, m_next); a = exp(m -
// m');  b = exp(m_next - m'); l = fma(l_next, b, l * a);  o = fma(o_next, b, o * a).
struct SegmentMerge {
  float* m = nullptr;
  float* l = nullptr;
  float* o = nullptr;  // [dim]
  float m_next = 0, l_next = 0;
  const float* o_next = nullptr;  // [dim]
  int dim = 0;
};

// y = round(the activation of gate and up); silu is swiglu of the table.
template <class T>
struct GluRow {
  const float* gate = nullptr;  // [n]
  const float* up = nullptr;
  int64_t n = 0;
  Activation activation;
  T* y = nullptr;
};

// The most leaves of a tree of sums, and the most sums that wait for the other child of their node
// while leaves come from left to right.
inline constexpr int kMaxCombineLeaves = 8192;
inline constexpr int kMaxPendingSums = 14;
static_assert(1 << (kMaxPendingSums - 1) == kMaxCombineLeaves);

// residual += scale * (the root of a tree + 0) + shared. A leaf is round(sum of fma(weight, y, acc)
// from +0), a node round(left + right).
template <class T>
struct CombineRow {
  const T* const* y = nullptr;     // [num_slots] rows of `cols`, leaves ascending
  const float* weights = nullptr;  // [num_slots]
  // [num_slots] 0: the leaf continues in the next slot. 1 + n: it ends here, and n nodes that have
  // two children are whole. The last slot ends all, so that one sum is left.
  const uint8_t* ends = nullptr;
  int num_slots = 0;
  int64_t cols = 0;
  float scale = 1;
  const float* shared = nullptr;  // [cols], or null
  float* residual = nullptr;      // [cols]
};

// A choice score that is NaN or below this counts as this, so that -inf marks only experts that are
// already chosen or excluded.
inline constexpr float kMinChoice = std::numeric_limits<float>::lowest();
// Added to the sum of the chosen sigmoid scores, because that sum may be 0.
inline constexpr float kSigmoidSumFloor = 1e-20f;

// router.h gives the rules.
struct TopKRow {
  const float* logits = nullptr;   // [num_experts]
  const float* bias = nullptr;     // [num_experts], or null
  const MoeConfig* moe = nullptr;  // num_experts, top_k, score, groups, norm, scaling
  float* scratch = nullptr;        // [3 * num_experts]
  int32_t* ids = nullptr;          // [top_k]
  float* weights = nullptr;        // [top_k]
};

// Quantizes one row to int8, `group` numbers at a time (the last group may be shorter):
//   amax = largest |x|;  scale = amax / 127;  q = round_to_nearest_even(x * (127 / amax))
// A group whose amax is below 2^-100 is all zero with scale 0; one that holds NaN or infinity has
// scale NaN and q 0. q is zero from n up to `padded`.
inline constexpr float kMinQuantized = 0x1p-100f;
template <class T>
struct QuantizeRow {
  const T* x = nullptr;  // [n]
  int64_t n = 0;
  int64_t group = 0;
  int64_t padded = 0;       // >= n
  int8_t* q = nullptr;      // [padded]
  float* scales = nullptr;  // [groups]
  int32_t* sums = nullptr;  // [groups] sums of q; or null
};

// The bodies that write activations of type T.
template <class T>
struct ActivationKernels {
  // y = round((x * inv) * w), inv = 1 / sqrt(sum(x^2) / n + eps), the sum by fma.
  void (*rms_norm)(const float* x, const float* w, int64_t n, float eps, T* y);
  // y = round(silu(gate) * up), silu(g) = g / (1 + exp(-g)).
  void (*swiglu)(const float* gate, const float* up, int64_t n, T* y);
  void (*glu)(const GluRow<T>& row);
  // y = round(x * weight); y may be x.
  void (*multiply)(const T* x, float weight, int64_t n, T* y);
  // y = round(x).
  void (*round)(const float* x, int64_t n, T* y);
  void (*head)(const HeadRow<T>& row);
  float (*softmax)(const SoftmaxRow<T>& row);  // returns alpha
  // y = round(o / l + 0), so that a zero is +0.
  void (*divide)(const float* o, float l, int64_t n, T* y);
  void (*combine)(const CombineRow<T>& row);
  void (*quantize)(const QuantizeRow<T>& row);
  // x = round(q * scale).
  void (*dequantize)(const int8_t* q, float scale, int64_t n, T* x);
};

struct RowKernels {
  Isa isa;  // level of these bodies: ref, avx2 or avx512
  ActivationKernels<Bf16> bf16;
  ActivationKernels<float> f32;
  // o *= alpha.
  void (*scale)(float alpha, int64_t n, float* o);
  void (*merge)(const SegmentMerge& merge);
  // x = cap * tanh((x * scale) / cap).
  void (*soft_cap)(float scale, float cap, int64_t n, float* x);
  // a = float(position) * inv_freq[i];  cos[i] = cos(a) * factor;  sin[i] = sin(a) * factor. out[0]
  // is cos [n], out[1] is sin [n].
  void (*angles)(float position, const float* inv_freq, int n, float factor, float* const out[2]);
  void (*top_k)(const TopKRow& row);
  void (*row_stats)(const float* x, int64_t n, RowStats* stats);
  // p = exp(x - max).
  void (*exp_row)(const float* x, int64_t n, float max, float* p);
  DeltaKernels<Bf16> delta_bf16;
  DeltaKernels<float> delta_f32;
  DeltaBlockKernels<Bf16> delta_block_bf16;  // null in ref
  DeltaBlockKernels<float> delta_block_f32;
  void (*convolve)(const Convolution& call);
  void (*decay_gates)(const DecayGates& gates);
  void (*channel_gates)(const ChannelGates& gates);

  template <class T>
  const ActivationKernels<T>& of() const {
    if constexpr (sizeof(T) == sizeof(Bf16)) {
      return bf16;
    } else {
      return f32;
    }
  }
  template <class T>
  const DeltaKernels<T>& delta() const {
    if constexpr (sizeof(T) == sizeof(Bf16)) {
      return delta_bf16;
    } else {
      return delta_f32;
    }
  }
  template <class T>
  const DeltaBlockKernels<T>& delta_block() const {
    if constexpr (sizeof(T) == sizeof(Bf16)) {
      return delta_block_bf16;
    } else {
      return delta_block_f32;
    }
  }
};

namespace ref {
extern const RowKernels kRows;
}  // namespace ref
namespace cpu {
extern const RowKernels kAvx2Rows;
extern const RowKernels kAvx512Rows;
}  // namespace cpu

}  // namespace hocket
