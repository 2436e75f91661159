// The definition of attention.h in code, for any kind of keys: one query, one key and one number at
// a time.
//
// Keys give numbers as fp32; T is the type that probabilities are rounded to:
//
//   void load(int begin, int end);   before a softmax block is read
//   float key(int token, int dim);  float value(int token, int dim);
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "compute/kernels/arithmetic/lane.h"
#include "compute/kernels/attention.h"

namespace hocket::ref {

// Returns c plus the canonical product of a(0), ..., a(k - 1) and b(0), ..., b(k - 1).
template <class A, class B>
float product(int k, float c, A&& a, B&& b) {
  for (int block = 0; block < k; block += kBlockK) {
    float even = 0, odd = 0;
    for (int i = block; i < block + kBlockK; i += 2) {
      even = std::fma(i < k ? a(i) : 0.0f, i < k ? b(i) : 0.0f, even);
      odd = std::fma(i + 1 < k ? a(i + 1) : 0.0f, i + 1 < k ? b(i + 1) : 0.0f, odd);
    }
    c = c + (even + odd);
  }
  return c;
}

// The running softmax of one query.
struct State {
  float& m;
  float& l;
  float* o;  // [value_dim]
};

// Some queries of one head, for neighbouring tokens.
template <class T, class Keys>
struct Queries {
  Keys keys;
  const T* q = nullptr;  // the first query; the others follow q_stride apart
  int64_t q_stride = 0;
  T* out = nullptr;
  int64_t out_stride = 0;
  int num = 0, first_position = 0;
  int key_dim = 0, value_dim = 0;
  float scale = 1;
  VisibleKeys visible_keys = {};
  float soft_cap = 0;  // 0: none
  std::optional<float> sink = {};

  // Returns the floats of scratch that run() needs: two states per query.
  int64_t scratch_floats() const { return num * 2 * state_floats(); }

  void run(float* scratch) {
    const auto all = [&](int i) { return state(scratch + i * 2 * state_floats()); };
    const auto next = [&](int i) { return state(scratch + (i * 2 + 1) * state_floats()); };
    int begin = visible_keys.first_key(first_position) / kAttentionSegment * kAttentionSegment;
    run_segment(begin, all);
    while ((begin += kAttentionSegment) < first_position + num) {
      run_segment(begin, next);
      for (int i = 0; i < num; ++i)
        if (sees(i, begin, begin + kAttentionSegment)) merge(all(i), next(i));
    }
    for (int i = 0; sink && i < num; ++i) {
      const State joining = next(i);
      joining.m = *sink;
      joining.l = 1;
      std::fill_n(joining.o, value_dim, 0.0f);
      merge(all(i), joining);
    }
    for (int i = 0; i < num; ++i)
      for (int d = 0; d < value_dim; ++d)
        out[i * out_stride + d] = from_float<T>(all(i).o[d] / all(i).l + 0.0f);
  }

 private:
  int64_t state_floats() const { return 2 + int64_t{value_dim}; }
  static State state(float* at) { return {at[0], at[1], at + 2}; }

  // Returns true if the query sees one of the keys [begin, end).
  bool sees(int query, int begin, int end) const {
    const int position = first_position + query;
    return begin <= position && visible_keys.first_key(position) < end;
  }

  template <class States>
  void run_segment(int segment, States&& states) {
    for (int i = 0; i < num; ++i) {
      const State state = states(i);
      state.m = -std::numeric_limits<float>::infinity();
      state.l = 0;
      std::fill_n(state.o, value_dim, 0.0f);
    }
    const int end = std::min(segment + kAttentionSegment, first_position + num);
    for (int block = segment; block < end; block += kSoftmaxBlock) {
      keys.load(block, std::min(block + kSoftmaxBlock, end));
      for (int i = 0; i < num; ++i)
        if (sees(i, block, block + kSoftmaxBlock)) add_block(i, block, states(i));
    }
  }

  void add_block(int query, int block, const State& state) {
    // The query sees keys [hidden, visible); the others have probability +0.
    const int visible = std::min(first_position + query + 1 - block, kSoftmaxBlock);
    const int hidden = std::max(visible_keys.first_key(first_position + query) - block, 0);
    const T* const row = q + query * q_stride;
    float s[kSoftmaxBlock], p[kSoftmaxBlock] = {}, lanes[16] = {};
    float m = state.m;
    for (int j = hidden; j < visible; ++j) {
      const auto q_of = [&](int d) { return to_float(row[d]); };
      const auto key_of = [&](int d) { return keys.key(block + j, d); };
      s[j] = product(key_dim, 0, q_of, key_of) * scale;
      if (soft_cap > 0) s[j] = ref::soft_cap(s[j], soft_cap);
      m = s[j] > m ? s[j] : m;
    }
    for (int j = hidden; j < visible; ++j) p[j] = to_float(from_float<T>(exp(s[j] - m)));
    for (int j = 0; j < kSoftmaxBlock; ++j) lanes[j % 16] = lanes[j % 16] + p[j];
    for (int width : {8, 4, 2, 1})
      for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
    const float alpha = exp(state.m - m);
    state.l = std::fma(state.l, alpha, lanes[0]);
    state.m = m;
    const int first = hidden / kBlockK * kBlockK;  // k-blocks before it hold hidden keys alone
    for (int d = 0; d < value_dim; ++d) {
      const auto p_of = [&](int j) { return p[first + j]; };
      const auto value_of = [&](int j) { return keys.value(block + first + j, d); };
      state.o[d] = product(visible - first, state.o[d] * alpha, p_of, value_of);
    }
  }

  void merge(const State& all, const State& next) const {
    const float m = all.m > next.m ? all.m : next.m;
    const float a = exp(all.m - m), b = exp(next.m - m);
    for (int d = 0; d < value_dim; ++d) all.o[d] = std::fma(next.o[d], b, all.o[d] * a);
    all.l = std::fma(next.l, b, all.l * a);
    all.m = m;
  }
};

}  // namespace hocket::ref
