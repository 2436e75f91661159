// The truth about attention.h: one query, one head and one key at a time, products written out.
#include <cmath>
#include <limits>

#include "compute/kernels/attention.h"
#include "compute/kernels/ref/lane.h"
#include "compute/kernels/row_bodies.h"

namespace hocket::ref {
namespace {

// The running softmax of one query.
struct State {
  float m = -std::numeric_limits<float>::infinity();
  float l = 0;
  float* o = nullptr;  // [value_dim]
};

template <class T>
struct Query {
  const AttentionSequence& sequence;
  const KvLayer& kv;
  int kv_head = 0;
  int position = 0;
  const T* q = nullptr;  // [round_up(key_dim, 32)]
  float scale = 1;

  float key(int token, int dim) const {
    const int page_tokens = kv.shape.page_tokens;
    const T* keys = kv.keys<T>(sequence.pages[token / page_tokens], kv_head);
    return to_float(keys[kv.shape.key_offset(token % page_tokens, dim)]);
  }
  float value(int token, int dim) const {
    const int page_tokens = kv.shape.page_tokens;
    const T* values = kv.values<T>(sequence.pages[token / page_tokens], kv_head);
    return to_float(values[kv.shape.value_offset(token % page_tokens, dim)]);
  }
};

template <class T>
float score(const Query<T>& query, int token) {
  float c = 0;
  for (int block = 0; block < query.kv.shape.key_dim; block += 32) {
    float even = 0, odd = 0;
    for (int d = block; d < block + 32; d += 2) {
      even = std::fma(to_float(query.q[d]), query.key(token, d), even);
      odd = std::fma(to_float(query.q[d + 1]), query.key(token, d + 1), odd);
    }
    c = c + (even + odd);
  }
  return c * query.scale;
}

template <class T>
void add_block(const Query<T>& query, int begin, State& state) {
  const auto visible = [&](int token) { return token <= query.position; };
  float s[kSoftmaxBlock], p[kSoftmaxBlock];
  float m = state.m;
  for (int j = 0; j < kSoftmaxBlock && visible(begin + j); ++j) {
    s[j] = score(query, begin + j);
    m = s[j] > m ? s[j] : m;
  }
  float lanes[16] = {};
  for (int j = 0; j < kSoftmaxBlock; ++j) {
    p[j] = visible(begin + j) ? to_float(from_float<T>(exp(s[j] - m))) : 0.0f;
    lanes[j % 16] = lanes[j % 16] + p[j];
  }
  for (int width : {8, 4, 2, 1})
    for (int i = 0; i < width; ++i) lanes[i] = lanes[i] + lanes[i + width];
  const float alpha = exp(state.m - m);
  state.l = std::fma(state.l, alpha, lanes[0]);
  state.m = m;
  for (int d = 0; d < query.kv.shape.value_dim; ++d) {
    float c = state.o[d] * alpha;
    for (int block = 0; block < kSoftmaxBlock && visible(begin + block); block += 32) {
      float even = 0, odd = 0;
      for (int j = block; j < block + 32; j += 2) {
        const bool both = visible(begin + j + 1);
        even = std::fma(p[j], visible(begin + j) ? query.value(begin + j, d) : 0.0f, even);
        odd = std::fma(p[j + 1], both ? query.value(begin + j + 1, d) : 0.0f, odd);
      }
      c = c + (even + odd);
    }
    state.o[d] = c;
  }
}

template <class T>
void run_query(const Query<T>& query, float* scratch, T* out) {
  const int dim = query.kv.shape.value_dim;
  State all{.o = scratch};
  for (int segment = 0; segment <= query.position; segment += kAttentionSegment) {
    State next{.o = segment == 0 ? scratch : scratch + dim};
    for (int d = 0; d < dim; ++d) next.o[d] = 0;
    for (int begin = segment; begin < segment + kAttentionSegment && begin <= query.position;
         begin += kSoftmaxBlock)
      add_block(query, begin, next);
    if (segment == 0) {
      all = next;
      continue;
    }
    const float m = all.m > next.m ? all.m : next.m;
    const float a = exp(all.m - m), b = exp(next.m - m);
    for (int d = 0; d < dim; ++d) all.o[d] = std::fma(next.o[d], b, all.o[d] * a);
    all.l = std::fma(next.l, b, all.l * a);
    all.m = m;
  }
  for (int d = 0; d < dim; ++d) out[d] = from_float<T>(all.o[d] / all.l + 0.0f);
}

}  // namespace

void attention(Backend& backend, const AttentionCall& call) {
  const auto& [q, kv, plan, scale, out] = call;
  with_dtype(kv.shape.dtype, [&](auto t) {
    using T = decltype(t);
    const int64_t q_dim = round_up(kv.shape.key_dim, kBlockK);
    const auto num_heads = static_cast<int>(q.cols / q_dim);
    const auto num_tasks = static_cast<int>(plan.tasks.size());
    backend.workers().run(num_tasks, [&](int index, int worker) {
      const AttentionPlan::Task& task = plan.tasks[index];
      const AttentionSequence& sequence = plan.sequences[task.sequence];
      float* const scratch = backend.scratch<float>(worker, 2 * kv.shape.value_dim);
      for (int r = task.row_begin; r < task.row_begin + task.num_rows; ++r) {
        for (int h = 0; h < num_heads; ++h) {
          const int64_t row = sequence.row_begin + r;
          const Query<T> query{sequence,
                               kv,
                               h / (num_heads / kv.shape.num_heads),
                               sequence.first_position + r,
                               q.as<T>().row(row) + h * q_dim,
                               scale};
          run_query(query, scratch, out.as<T>().row(row) + h * kv.shape.value_dim);
        }
      }
    });
  });
}

}  // namespace hocket::ref
