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

// States of the largest task that a worker's scratch has room for when workers share a task's
// segments.
constexpr int kSharedStates = 8;

int query_rows_max(int group) {
  return std::max(kTaskQueryRows, group);
}

// The running softmax of some rows.
struct State {
  float* m;  // [rows]
  float* l;  // [rows]
  float* o;  // [rows][value stride]

  void lay(Layout& layout, int64_t rows, const KvShape& shape) {
    m = layout.array<float>(rows);
    l = layout.array<float>(rows);
    o = layout.array<float>(rows * round_up(shape.value_dim, kPanelN));
  }
  static int64_t bytes(int64_t rows, const KvShape& shape) {
    Layout layout;
    State().lay(layout, rows, shape);
    return layout.bytes();
  }
};

// One worker's scratch for one task and KV head; rows are [token][head of the group].
template <class T>
struct Scratch {
  T* q;           // [rows][q_dim]
  T* p;           // [rows][kSoftmaxBlock]
  float* scores;  // [rows][kSoftmaxBlock]
  State all, next;
  std::byte* product;

  // Sets the pointers from `memory` on; returns the bytes used.
  int64_t lay(std::byte* memory, int rows, const KvShape& shape) {
    Layout layout(memory);
    const int64_t q_dim = round_up(shape.key_dim, kBlockK);
    q = layout.array<T>(rows * q_dim);
    p = layout.array<T>(int64_t{rows} * kSoftmaxBlock);
    scores = layout.array<float>(int64_t{rows} * kSoftmaxBlock);
    all.lay(layout, rows, shape);
    next.lay(layout, rows, shape);
    const auto k_blocks = static_cast<int>(q_dim / kBlockK);
    product = layout.array<std::byte>(product_scratch_bytes(rows, k_blocks));
    return layout.bytes();
  }
  static int64_t bytes(int rows, const KvShape& shape) {
    return Scratch().lay(nullptr, rows, shape);
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
        products_(backend.products()),
        kv_(kv),
        sequence_(sequence),
        shape_(shape),
        scratch_(scratch) {}

  void select(const AttentionPlan::Task& task, int kv_head) {
    first_position_ = sequence_.first_position + task.row_begin;
    row_begin_ = sequence_.row_begin + task.row_begin;
    num_rows_ = task.num_rows;
    kv_head_ = kv_head;
  }
  int num_keys() const { return first_position_ + num_rows_; }

  void gather(const View<T>& q) {
    const int64_t q_heads = int64_t{shape_.group} * shape_.q_dim;
    for (int r = 0; r < num_rows_; ++r)
      std::memcpy(scratch_.q + r * q_heads, q.row(row_begin_ + r) + kv_head_ * q_heads,
                  q_heads * sizeof(T));
  }

  // The segment from key `begin` on, for the rows that see it.
  void run_segment(int begin, const State& state) {
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

  // all = all and then the segment from `begin` on, for the rows that see it.
  void merge(int begin, const State& all, const State& next) {
    for (int i = first_row(begin) * shape_.group; i < num_rows_ * shape_.group; ++i) {
      rows_.merge({.m = all.m + i,
                   .l = all.l + i,
                   .o = all.o + int64_t{i} * shape_.v_dim,
                   .m_next = next.m[i],
                   .l_next = next.l[i],
                   .o_next = next.o + int64_t{i} * shape_.v_dim,
                   .dim = shape_.v_dim});
    }
  }

  void finish(const State& all, const View<T>& out) {
    const int value_dim = kv_.shape.value_dim;
    for (int i = 0; i < num_rows_ * shape_.group; ++i) {
      const int64_t head = int64_t{kv_head_} * shape_.group + i % shape_.group;
      T* const to = out.row(row_begin_ + i / shape_.group) + head * value_dim;
      rows_.of<T>().divide(all.o + int64_t{i} * shape_.v_dim, all.l[i], value_dim, to);
    }
  }

 private:
  // The first row that sees key `token`; those after it do too.
  int first_row(int token) const { return std::max(0, token - first_position_); }
  PageId page_of(int token) const { return sequence_.pages[token / kv_.shape.page_tokens]; }

  // scores = q . keys, only for rows that see a key of the piece.
  void score_block(int block, int block_end) {
    const int page_tokens = kv_.shape.page_tokens;
    for (int token = block; token < block_end;) {
      const int in_page = token % page_tokens;
      const int end = std::min(block_end, token - in_page + page_tokens);
      const int row = first_row(token) * shape_.group;
      const int k_blocks = shape_.q_dim / kBlockK;
      products_.run<T>(
          {.x = scratch_.q + int64_t{row} * shape_.q_dim,
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

  void softmax_block(int block, const State& state) {
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
  void value_block(int block, int block_end, const State& state) {
    for (int token = block; token < block_end; token += kBlockK) {
      const int row = first_row(token) * shape_.group;
      const int in_page = token % kv_.shape.page_tokens;
      products_.run<T>(
          {.x = scratch_.p + int64_t{row} * kSoftmaxBlock + (token - block),
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

  const RowKernels& rows_;
  const ProductKernels& products_;
  const KvLayer& kv_;
  const AttentionSequence& sequence_;
  const Shape shape_;
  Scratch<T>& scratch_;
  int first_position_ = 0, num_rows_ = 0, kv_head_ = 0;
  int64_t row_begin_ = 0;
};

// All tasks of one call.
template <class T>
class BatchRun {
 public:
  BatchRun(Backend& backend, const AttentionCall& call)
      : backend_(backend),
        kv_(call.kv),
        plan_(call.plan),
        q_(call.q.as<T>()),
        out_(call.out.as<T>()) {
    shape_.q_dim = static_cast<int>(round_up(kv_.shape.key_dim, kBlockK));
    shape_.v_dim = static_cast<int>(round_up(kv_.shape.value_dim, kPanelN));
    shape_.group = static_cast<int>(q_.cols / shape_.q_dim / kv_.shape.num_heads);
    shape_.scale = call.scale;
    rows_max_ = query_rows_max(shape_.group);
    scratch_bytes_ = Scratch<T>::bytes(rows_max_, kv_.shape);
  }

  // One worker takes all segments of a task and KV head.
  void run_whole() {
    backend_.workers().run(num_items(), [&](int item, int worker) {
      Scratch<T> scratch = scratch_of(worker);
      TaskRun<T> run = task_run(item, scratch);
      run.gather(q_);
      run.run_segment(0, scratch.all);
      for (int begin = kAttentionSegment; begin < run.num_keys(); begin += kAttentionSegment) {
        run.run_segment(begin, scratch.next);
        run.merge(begin, scratch.all, scratch.next);
      }
      run.finish(scratch.all, out_);
    });
  }

  // Long contexts with few tasks: workers share the segments, whose states wait in all workers'
  // scratch and are then merged in order. Returns false, having done nothing, where that would not
  // fill more workers or has no room.
  bool run_split() {
    const int num_workers = backend_.workers().size();
    if (num_workers == 1 || num_items() >= 4 * num_workers) return false;
    int num_units = 0, rows = 0;
    for (const AttentionPlan::Task& task : plan_.tasks) {
      num_units += num_segments(task) * kv_.shape.num_heads;
      rows = std::max(rows, task.num_rows * shape_.group);
    }
    if (num_units == num_items()) return false;
    const int64_t room = kSharedStates * State::bytes(rows_max_, kv_.shape);
    const int64_t state_bytes = State::bytes(rows, kv_.shape);
    if (num_units > room / state_bytes * num_workers) return false;
    const auto state_of = [&](int unit) {
      std::byte* const shared =
          backend_.scratch<std::byte>(unit % num_workers, scratch_bytes_ + room) + scratch_bytes_;
      Layout layout(shared + unit / num_workers * state_bytes);
      State state;
      state.lay(layout, rows, kv_.shape);
      return state;
    };
    backend_.workers().run(num_units, [&](int unit, int worker) {
      const Segment segment = segment_of(unit);
      Scratch<T> scratch = scratch_of(worker);
      TaskRun<T> run = task_run(segment.item, scratch);
      run.gather(q_);
      run.run_segment(segment.begin, state_of(unit));
    });
    backend_.workers().run(num_items(), [&](int item, int worker) {
      Scratch<T> scratch = scratch_of(worker);
      TaskRun<T> run = task_run(item, scratch);
      int unit = first_unit(item);
      const State all = state_of(unit);
      for (int begin = kAttentionSegment; begin < run.num_keys(); begin += kAttentionSegment)
        run.merge(begin, all, state_of(++unit));
      run.finish(all, out_);
    });
    return true;
  }

 private:
  // An item is a task and KV head; its segments are units, numbered through all items.
  struct Segment {
    int item, begin;
  };
  int num_items() const { return static_cast<int>(plan_.tasks.size()) * kv_.shape.num_heads; }
  const AttentionPlan::Task& task_of(int item) const {
    return plan_.tasks[item / kv_.shape.num_heads];
  }
  int num_segments(const AttentionPlan::Task& task) const {
    const int last =
        plan_.sequences[task.sequence].first_position + task.row_begin + task.num_rows - 1;
    return last / kAttentionSegment + 1;
  }
  int first_unit(int item) const {
    int unit = 0;
    for (int i = 0; i < item; ++i) unit += num_segments(task_of(i));
    return unit;
  }
  Segment segment_of(int unit) const {
    int item = 0;
    for (; unit >= num_segments(task_of(item)); ++item) unit -= num_segments(task_of(item));
    return {item, unit * kAttentionSegment};
  }

  Scratch<T> scratch_of(int worker) const {
    Scratch<T> scratch;
    scratch.lay(backend_.scratch<std::byte>(worker, scratch_bytes_), rows_max_, kv_.shape);
    return scratch;
  }
  TaskRun<T> task_run(int item, Scratch<T>& scratch) const {
    TaskRun<T> run(backend_, kv_, plan_.sequences[task_of(item).sequence], shape_, scratch);
    run.select(task_of(item), item % kv_.shape.num_heads);
    return run;
  }

  Backend& backend_;
  const KvLayer& kv_;
  const AttentionPlan& plan_;
  const View<T> q_, out_;
  typename TaskRun<T>::Shape shape_{};
  int rows_max_ = 0;
  int64_t scratch_bytes_ = 0;
};

void check_shapes(const AttentionCall& call) {
  const auto& [q, kv, plan, scale, out] = call;
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

void AttentionPlan::build(int num_heads, const KvShape& shape) {
  const int num_kv_heads = shape.num_heads;
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
  const int64_t one_task = shape.dtype == DType::bf16 ? Scratch<Bf16>::bytes(rows, shape)
                                                      : Scratch<float>::bytes(rows, shape);
  return one_task + kSharedStates * State::bytes(rows, shape);
}

void attention(Backend& backend, const AttentionCall& call) {
  check_shapes(call);
  if (backend.isa() == Isa::ref) return ref::attention(backend, call);
  with_dtype(call.kv.shape.dtype, [&](auto t) {
    BatchRun<decltype(t)> run(backend, call);
    if (!run.run_split()) run.run_whole();
  });
}

}  // namespace hocket
