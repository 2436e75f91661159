#include "compute/kernels/attention.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "compute/kernels/product_kernels.h"
#include "compute/kernels/row_bodies.h"

namespace hocket {
namespace {

// Query rows (tokens times heads of a group) of one task: enough to reuse a page, few enough to
// stay in cache.
constexpr int kTaskQueryRows = 64;

int query_rows_max(int group) {
  return std::max(kTaskQueryRows, group);
}

// One worker's scratch for one task and KV head; rows are [token][head of the group].
template <class T>
struct Scratch {
  struct State {
    float* m;  // [rows]
    float* l;  // [rows]
    float* o;  // [rows][value stride]
  };
  T* q;           // [rows][q_dim]
  T* p;           // [rows][kSoftmaxBlock]
  float* scores;  // [rows][kSoftmaxBlock]
  State all, next;
  std::byte* product;

  static int64_t bytes(int rows, const KvShape& shape) {
    return Scratch().lay(nullptr, rows, shape);
  }
  // Sets the pointers from `memory` on; returns the bytes used.
  int64_t lay(std::byte* memory, int rows, const KvShape& shape) {
    Layout layout(memory);
    const int64_t q_dim = round_up(shape.key_dim, kBlockK);
    const int64_t v_dim = round_up(shape.value_dim, kPanelN);
    q = layout.array<T>(rows * q_dim);
    p = layout.array<T>(int64_t{rows} * kSoftmaxBlock);
    scores = layout.array<float>(int64_t{rows} * kSoftmaxBlock);
    for (State* state : {&all, &next}) {
      state->m = layout.array<float>(rows);
      state->l = layout.array<float>(rows);
      state->o = layout.array<float>(rows * v_dim);
    }
    const int64_t k_blocks = std::max<int64_t>(q_dim, kSoftmaxBlock) / kBlockK;
    product = layout.array<std::byte>(product_scratch_bytes(rows, static_cast<int>(k_blocks)));
    return layout.bytes();
  }
};

// One task and KV head. Rows and tokens are counted from the task's first.
template <class T>
class TaskRun {
 public:
  struct Shape {
    int group, q_dim, v_dim;
    float scale;
  };
  TaskRun(const Backend& backend, const KvLayer& kv, const AttentionSequence& sequence,
          const Shape& shape, Scratch<T>& scratch)
      : rows_(backend.rows()),
        product_(product_of(backend.products())),
        kv_(kv),
        sequence_(sequence),
        shape_(shape),
        scratch_(scratch) {}

  void run(const AttentionPlan::Task& task, int kv_head, View<const T> q, View<T> out) {
    first_position_ = sequence_.first_position + task.row_begin;
    num_rows_ = task.num_rows;
    kv_head_ = kv_head;
    const int64_t row_begin = sequence_.row_begin + task.row_begin;
    const int64_t q_heads = int64_t{shape_.group} * shape_.q_dim;
    for (int r = 0; r < num_rows_; ++r)
      std::memcpy(scratch_.q + r * q_heads, q.row(row_begin + r) + kv_head * q_heads,
                  q_heads * sizeof(T));
    run_segment(0, scratch_.all);
    for (int begin = kAttentionSegment; begin < num_keys(); begin += kAttentionSegment) {
      run_segment(begin, scratch_.next);
      merge_from(first_row(begin) * shape_.group);
    }
    const int value_dim = kv_.shape.value_dim;
    for (int i = 0; i < num_rows_ * shape_.group; ++i) {
      T* const to = out.row(row_begin + i / shape_.group) +
                    (int64_t{kv_head} * shape_.group + i % shape_.group) * value_dim;
      rows_.of<T>().divide(scratch_.all.o + int64_t{i} * shape_.v_dim, scratch_.all.l[i], value_dim,
                           to);
    }
  }

 private:
  using State = typename Scratch<T>::State;
  using ProductBody = void (*)(const Product<T>&);
  static ProductBody product_of(const ProductKernels& kernels) {
    if constexpr (std::is_same_v<T, Bf16>) {
      return kernels.bf16;
    } else {
      return kernels.f32;
    }
  }

  int num_keys() const { return first_position_ + num_rows_; }
  // The first row that sees key `token`; those after it do too.
  int first_row(int token) const { return std::max(0, token - first_position_); }
  PageId page_of(int token) const { return sequence_.pages[token / kv_.shape.page_tokens]; }

  void run_segment(int begin, State& state) {
    const int first = first_row(begin) * shape_.group, last = num_rows_ * shape_.group;
    std::fill(state.m + first, state.m + last, -std::numeric_limits<float>::infinity());
    std::fill(state.l + first, state.l + last, 0.0f);
    std::fill(state.o + int64_t{first} * shape_.v_dim, state.o + int64_t{last} * shape_.v_dim,
              0.0f);
    const int end = std::min(begin + kAttentionSegment, num_keys());
    for (int block = begin; block < end; block += kSoftmaxBlock) {
      const int block_end = std::min(block + kSoftmaxBlock, end);
      score_block(block, block_end);
      softmax_block(block, state);
      value_block(block, block_end, state);
    }
  }

  // scores = q . keys, only for rows that see a key of the piece.
  void score_block(int block, int block_end) {
    const int page_tokens = kv_.shape.page_tokens;
    for (int token = block; token < block_end;) {
      const int in_page = token % page_tokens;
      const int end = std::min(block_end, token - in_page + page_tokens);
      const int row = first_row(token) * shape_.group;
      const int k_blocks = shape_.q_dim / kBlockK;
      product_({.x = scratch_.q + int64_t{row} * shape_.q_dim,
                .x_stride = shape_.q_dim,
                .rows = num_rows_ * shape_.group - row,
                .w = kv_.keys<T>(page_of(token), kv_head_) + kv_.shape.key_offset(in_page, 0),
                .panel_stride = int64_t{k_blocks} * kTileElements,
                .panels = (end - token + kPanelN - 1) / kPanelN,
                .k_blocks = k_blocks,
                .y = scratch_.scores + int64_t{row} * kSoftmaxBlock + (token - block),
                .y_stride = kSoftmaxBlock,
                .accumulate = false,
                .scratch = scratch_.product});
      token = end;
    }
  }

  void softmax_block(int block, State& state) {
    for (int i = first_row(block) * shape_.group; i < num_rows_ * shape_.group; ++i) {
      const int visible = first_position_ + i / shape_.group + 1 - block;
      const float alpha =
          rows_.of<T>().softmax({.scores = scratch_.scores + int64_t{i} * kSoftmaxBlock,
                                 .visible = std::min(visible, kSoftmaxBlock),
                                 .scale = shape_.scale,
                                 .m = state.m + i,
                                 .l = state.l + i,
                                 .p = scratch_.p + int64_t{i} * kSoftmaxBlock});
      if (alpha != 1) rows_.scale(alpha, shape_.v_dim, state.o + int64_t{i} * shape_.v_dim);
    }
  }

  // o += p . values, a k-block of 32 keys at a time.
  void value_block(int block, int block_end, State& state) {
    for (int token = block; token < block_end; token += kBlockK) {
      const int row = first_row(token) * shape_.group;
      const int in_page = token % kv_.shape.page_tokens;
      product_({.x = scratch_.p + int64_t{row} * kSoftmaxBlock + (token - block),
                .x_stride = kSoftmaxBlock,
                .rows = num_rows_ * shape_.group - row,
                .w = kv_.values<T>(page_of(token), kv_head_) + kv_.shape.value_offset(in_page, 0),
                .panel_stride = kTileElements,
                .panels = shape_.v_dim / kPanelN,
                .k_blocks = 1,
                .y = state.o + int64_t{row} * shape_.v_dim,
                .y_stride = shape_.v_dim,
                .accumulate = true,
                .scratch = scratch_.product});
    }
  }

  void merge_from(int first) {
    for (int i = first; i < num_rows_ * shape_.group; ++i) {
      rows_.merge({.m = scratch_.all.m + i,
                   .l = scratch_.all.l + i,
                   .o = scratch_.all.o + int64_t{i} * shape_.v_dim,
                   .m_next = scratch_.next.m[i],
                   .l_next = scratch_.next.l[i],
                   .o_next = scratch_.next.o + int64_t{i} * shape_.v_dim,
                   .dim = shape_.v_dim});
    }
  }

  const RowKernels& rows_;
  const ProductBody product_;
  const KvLayer& kv_;
  const AttentionSequence& sequence_;
  const Shape shape_;
  Scratch<T>& scratch_;
  int first_position_ = 0, num_rows_ = 0, kv_head_ = 0;
};

void check_shapes(const MatrixView& q, const KvLayer& kv, const AttentionPlan& plan,
                  const MatrixView& out) {
  const KvShape& shape = kv.shape;
  const int64_t q_dim = round_up(shape.key_dim, kBlockK);
  HOCKET_CHECK(q.dtype == shape.dtype && out.dtype == shape.dtype);
  HOCKET_CHECK(q.cols % (q_dim * shape.num_heads) == 0);
  HOCKET_CHECK(out.cols == q.cols / q_dim * shape.value_dim);
  HOCKET_CHECK(shape.page_tokens % kBlockK == 0);
  for (const AttentionSequence& s : plan.sequences) {
    HOCKET_CHECK(s.row_begin + s.num_rows <= q.rows && s.row_begin + s.num_rows <= out.rows);
    const int64_t tokens = s.first_position + s.num_rows;
    HOCKET_CHECK(static_cast<int64_t>(s.pages.size()) * shape.page_tokens >= tokens);
  }
}

}  // namespace

void AttentionPlan::reserve(int max_sequences, int max_rows) {
  sequences.reserve(max_sequences);
  tasks.reserve(max_rows);
}

void AttentionPlan::build(int num_heads, int num_kv_heads) {
  HOCKET_CHECK(num_kv_heads >= 1 && num_heads % num_kv_heads == 0);
  const int step = std::max(1, kTaskQueryRows / (num_heads / num_kv_heads));
  tasks.clear();
  for (int s = 0; s < static_cast<int>(sequences.size()); ++s)
    for (int row = 0; row < sequences[s].num_rows; row += step)
      tasks.push_back({s, row, std::min(step, sequences[s].num_rows - row)});
  // The longest first, so that no worker starts one when the others are done.
  const auto work = [&](const Task& t) {
    return int64_t{sequences[t.sequence].first_position + t.row_begin + t.num_rows} * t.num_rows;
  };
  std::ranges::sort(tasks, [&](const Task& a, const Task& b) { return work(a) > work(b); });
}

int64_t attention_scratch_bytes(int num_heads, const KvShape& shape) {
  const int rows = query_rows_max(num_heads / shape.num_heads);
  return shape.dtype == DType::bf16 ? Scratch<Bf16>::bytes(rows, shape)
                                    : Scratch<float>::bytes(rows, shape);
}

void attention(Backend& backend, MatrixView q, const KvLayer& kv, const AttentionPlan& plan,
               float scale, MatrixView out) {
  check_shapes(q, kv, plan, out);
  if (backend.isa() == Isa::ref) return ref::attention(backend, q, kv, plan, scale, out);
  const int64_t q_dim = round_up(kv.shape.key_dim, kBlockK);
  const int num_kv_heads = kv.shape.num_heads;
  const auto group = static_cast<int>(q.cols / q_dim / num_kv_heads);
  const auto num_items = static_cast<int>(plan.tasks.size()) * num_kv_heads;
  with_dtype(kv.shape.dtype, [&](auto t) {
    using T = decltype(t);
    const typename TaskRun<T>::Shape shape = {
        group, static_cast<int>(q_dim), static_cast<int>(round_up(kv.shape.value_dim, kPanelN)),
        scale};
    const int rows = query_rows_max(group);
    const int64_t bytes = Scratch<T>::bytes(rows, kv.shape);
    backend.workers().run(num_items, [&](int item, int worker) {
      const AttentionPlan::Task& task = plan.tasks[item / num_kv_heads];
      Scratch<T> scratch;
      scratch.lay(backend.scratch<std::byte>(worker, bytes), rows, kv.shape);
      TaskRun<T> run(backend, kv, plan.sequences[task.sequence], shape, scratch);
      run.run(task, item % num_kv_heads, q.as<T>(), out.as<T>());
    });
  });
}

}  // namespace hocket
