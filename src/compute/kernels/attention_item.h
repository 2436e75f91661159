// Attention of one item (a task and some heads) over any source of keys: its rows are multiplied
// with their keys block by block in the order of attention.h. attention_run.h shares the items
// among the workers.
// Private to the operations; thread: any worker, with scratch of its own.
//
// A Source holds the keys that some heads of a sequence share. A softmax block [block, block_end)
// is first loaded, then read as tiles:
//
//   void       load(int block, int block_end);
//   TileRun<T> keys(int token, int block_end);     token: block, or where the last run ended
//   TileRun<T> values(int token, int block_end);
//
// A Sources object makes the Source for item `index` of a task. Its scratch has the same size each
// time; a Layout without memory measures it:
//
//   Source source(const AttentionSequence& sequence, int index, Layout& scratch) const;
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "compute/kernels/arithmetic/attention_block.h"
#include "compute/kernels/attention.h"
#include "compute/kernels/choose.h"
#include "compute/kernels/product_kernels.h"
#include "compute/kernels/row_kernels.h"
#include "compute/tensor/buffer.h"

namespace hocket {

// Returns the body for items of `rows` query rows; null if such items run by separate products.
template <class T>
const BlockBody<T>* block_body(Isa isa, int rows) {
  if (isa < Isa::avx512) return nullptr;
  if constexpr (sizeof(T) == sizeof(float)) {
    return &cpu::kF32BlockByFma;
  } else {
    if (isa >= Isa::amx && rows >= kTileRows)
      return isa == Isa::amx ? &cpu::kBf16BlockByTiles : &cpu::kBf16BlockByEmulatedTiles;
    return uses_vdpbf16ps(isa) ? &cpu::kBf16BlockByVdpbf16ps : &cpu::kBf16BlockByFma;
  }
}

// Query rows (tokens times heads) that are computed with a block at a time: enough to reuse its
// tiles, few enough to stay in cache.
inline constexpr int kQueryRows = 64;
// Query rows of one task that has many, so that reading its keys, or making their tiles, takes
// little of the time.
inline constexpr int kManyQueryRows = 256;
// Tiles of the tokens up to `end`: keys are whole panels of 16 tokens; values are, for each panel
// of 16 dims, whole k-blocks of 32 tokens.
template <class T>
struct TileRun {
  const T* tiles = nullptr;
  int64_t panel_stride = 0;
  int end = 0;
};

// The fields that all items of one run share. An item is a task and `heads_per_item` consecutive
// heads (fewer at the end) that share keys.
template <class T>
struct AttentionForm {
  View<T> q;          // [rows, num_heads * q_dim]
  View<T> out;        // [rows, num_heads * out_dim]
  int num_heads = 0;  // query heads
  int heads_per_item = 1;
  int q_dim = 0;                   // a multiple of 32
  int value_dim = 0, out_dim = 0;  // out_dim >= value_dim; the rest of out is zero
  float scale = 1;
  VisibleKeys visible;
  float soft_cap = 0;            // 0: none
  std::span<const float> sinks;  // [num_heads], or empty
  int max_rows = 0;              // query rows of the largest item

  int v_dim() const { return static_cast<int>(round_up(value_dim, kPanelN)); }
  int items_per_task() const { return (num_heads + heads_per_item - 1) / heads_per_item; }
};

// The running softmax of some query rows.
struct SoftmaxState {
  float* m = nullptr;  // [rows]
  float* l = nullptr;  // [rows]
  float* o = nullptr;  // [rows][v_dim]

  void lay(Layout& layout, int64_t rows, int v_dim) {
    m = layout.array<float>(rows);
    l = layout.array<float>(rows);
    o = layout.array<float>(rows * v_dim);
  }
  static int64_t bytes(int64_t rows, int v_dim) {
    Layout layout;
    SoftmaxState().lay(layout, rows, v_dim);
    return layout.bytes();
  }
};

// One worker's scratch for an item. Query rows are ordered [sequence][token][head of the group].
template <class T>
struct ItemScratch {
  T* q = nullptr;               // [rows][q_dim], used if rows must be gathered
  float* q_operands = nullptr;  // [rows][at most q_dim], used if a block has a body
  T* p = nullptr;               // [kQueryRows][kSoftmaxBlock]
  float* scores = nullptr;      // [kQueryRows][kSoftmaxBlock]
  SoftmaxState all, next;
  std::byte* product = nullptr;

  void lay(Layout& layout, const AttentionForm<T>& form) {
    const int64_t rows = form.max_rows;
    q = layout.array<T>(
        (form.heads_per_item == 1 ? std::min<int64_t>(rows, kManyQueryRows) : rows) * form.q_dim);
    q_operands = layout.array<float>(rows * form.q_dim);
    p = layout.array<T>(kQueryRows * kSoftmaxBlock);
    scores = layout.array<float>(kQueryRows * kSoftmaxBlock);
    all.lay(layout, rows, form.v_dim());
    next.lay(layout, rows, form.v_dim());
    const int k_blocks = std::max(form.q_dim, kSoftmaxBlock) / kBlockK;
    product = layout.array<std::byte>(product_scratch_bytes(kQueryRows, k_blocks));
  }
};

// The computation of one item. Query rows are counted from the item's first row.
template <class T, class Sources>
class ItemRun {
 public:
  struct Item {
    const AttentionPlan& plan;
    const AttentionPlan::Task& task;
    int index = 0;  // index of the item in its task
    Layout layout;  // scratch that follows ItemScratch
  };
  ItemRun(const Backend& backend, const AttentionForm<T>& form, const ItemScratch<T>& scratch,
          const Sources& sources, const Item& item)
      : rows_(backend.rows()),
        products_(backend.products()),
        form_(form),
        scratch_(scratch),
        sources_(sources),
        item_(item),
        head_begin_(item.index * form.heads_per_item),
        num_heads_(std::min(form.heads_per_item, form.num_heads - head_begin_)),
        num_rows_(item.task.num_rows * num_heads_),
        body_(block_body<T>(backend.isa(), num_rows_)) {
    HOCKET_CHECK(num_rows_ <= form.max_rows);
    set_queries();
  }

  // Computes the segment that starts at key `begin`, for the rows that see it:
  //   keys     begin ... shared_keys ... begin + 1024
  //   rows     | of all members  | of each member |
  // If the reach is bounded, each member runs all its blocks, as their first keys differ.
  void run_segment(int begin, const SoftmaxState& state) {
    const int v_dim = form_.v_dim(), end = begin + kAttentionSegment;
    std::fill(state.m, state.m + num_rows_, -std::numeric_limits<float>::infinity());
    std::fill(state.l, state.l + num_rows_, 0.0f);
    std::fill(state.o, state.o + int64_t{num_rows_} * v_dim, 0.0f);
    const int shared = form_.visible.bounded() ? 0 : item_.task.shared_keys;
    if (begin < shared) {
      const Member everyone = {.sequence = &sequence_of(item_.task),
                               .num_tokens = item_.task.num_rows,
                               .first_position = shared};
      run_blocks(everyone, begin, std::min(end, shared), state);
    }
    for_members([&](const Member& member) {
      const int first = form_.visible.first_key(member.first_position);
      run_blocks(member, std::max({begin, shared, first / kSoftmaxBlock * kSoftmaxBlock}),
                 std::min(end, member.num_keys()), state);
    });
  }

  // Merges the segment that starts at key `begin` into `all`, for the rows that see it. A row that
  // sees no segment before it has the state of no keys in `all`, which changes no bit.
  void merge(int begin, const SoftmaxState& all, const SoftmaxState& next) {
    const int v_dim = form_.v_dim(), end = begin + kAttentionSegment;
    for_members([&](const Member& member) {
      for (int i = first_row(member, begin); i < end_row(member, end); ++i) {
        rows_.merge({.m = all.m + i,
                     .l = all.l + i,
                     .o = all.o + int64_t{i} * v_dim,
                     .m_next = next.m[i],
                     .l_next = next.l[i],
                     .o_next = next.o + int64_t{i} * v_dim,
                     .dim = v_dim});
      }
    });
  }

  void run_all_segments() {
    const int num_keys = item_.plan.num_keys(item_.task);
    int begin = item_.plan.first_key(item_.task, form_.visible);
    begin = begin / kAttentionSegment * kAttentionSegment;
    run_segment(begin, scratch_.all);
    while ((begin += kAttentionSegment) < num_keys) {
      run_segment(begin, scratch_.next);
      merge(begin, scratch_.all, scratch_.next);
    }
    finish(scratch_.all);
  }

  void finish(const SoftmaxState& all) {
    const int value_dim = form_.value_dim, out_dim = form_.out_dim;
    if (!form_.sinks.empty()) join_sinks(all);
    for_members([&](const Member& member) {
      for (int i = member.query_row; i < end_of(member); ++i) {
        const int in_member = i - member.query_row;
        const int64_t head = head_begin_ + in_member % num_heads_;
        T* const to = form_.out.row(member.row_begin + in_member / num_heads_) + head * out_dim;
        rows_.of<T>().divide(all.o + int64_t{i} * form_.v_dim(), all.l[i], value_dim, to);
        std::fill(to + value_dim, to + out_dim, T{});
      }
    });
  }

 private:
  using Source = decltype(std::declval<const Sources&>().source(
      std::declval<const AttentionSequence&>(), 0, std::declval<Layout&>()));

  // Neighbouring tokens of one sequence: the task's only sequence, or one of those that share a
  // prefix.
  struct Member {
    const AttentionSequence* sequence = nullptr;
    int64_t row_begin = 0;  // row in the batch
    int num_tokens = 0, first_position = 0;
    int query_row = 0;

    int num_keys() const { return first_position + num_tokens; }
  };
  // Query rows [begin, end) that are computed with a block together.
  struct Rows {
    int begin, end;
  };
  // The key range [begin, end) of one block, in tokens.
  struct Keys {
    int begin, end;
  };

  const AttentionSequence& sequence_of(const AttentionPlan::Task& task) const {
    return item_.plan.sequences[task.sequence];
  }
  template <class F>
  void for_members(F&& f) const {
    int query_row = 0;
    for (int i = 0; i < item_.task.num_members; ++i) {
      const AttentionPlan::Task task = item_.plan.member(item_.task, i);
      const AttentionSequence& sequence = sequence_of(task);
      const Member member = {.sequence = &sequence,
                             .row_begin = sequence.row_begin + task.row_begin,
                             .num_tokens = task.num_rows,
                             .first_position = sequence.first_position + task.row_begin,
                             .query_row = query_row};
      f(member);
      query_row = end_of(member);
    }
  }
  int end_of(const Member& member) const {
    return member.query_row + member.num_tokens * num_heads_;
  }
  // Returns the first query row that sees key `token`; all rows after it see it too.
  int first_row(const Member& member, int token) const {
    const int tokens = std::clamp(token - member.first_position, 0, member.num_tokens);
    return member.query_row + tokens * num_heads_;
  }
  // Returns the end of the query rows that see a key before `token`, if each sees keys from `token`
  // on or before it; all rows after it see none.
  int end_row(const Member& member, int token) const {
    int end = member.num_tokens;
    if (form_.visible.bounded())
      while (end > 0 && form_.visible.first_key(member.first_position + end - 1) >= token) --end;
    return member.query_row + end * num_heads_;
  }
  int position_of(const Member& member, int row) const {
    return member.first_position + (row - member.query_row) / num_heads_;
  }
  // Returns the end of the keys that a row sees in the block that starts at `block`, at most 128,
  // counted from there; and their begin.
  int visible(const Member& member, int row, int block) const {
    return std::min(position_of(member, row) + 1 - block, kSoftmaxBlock);
  }
  int first_visible(const Member& member, int row, int block) const {
    return std::max(form_.visible.first_key(position_of(member, row)) - block, 0);
  }

  // Each head's sink joins its rows as a segment with m = sink, l = 1, o = 0.
  void join_sinks(const SoftmaxState& all) {
    const int v_dim = form_.v_dim();
    float* const zeros = scratch_.next.o;
    std::fill(zeros, zeros + v_dim, 0.0f);
    for (int i = 0; i < num_rows_; ++i)
      rows_.merge({.m = all.m + i,
                   .l = all.l + i,
                   .o = all.o + int64_t{i} * v_dim,
                   .m_next = form_.sinks[head_begin_ + i % num_heads_],
                   .l_next = 1,
                   .o_next = zeros,
                   .dim = v_dim});
  }

  // Prepares the query rows: makes their operands if a block has a body; else sets q_ to the rows
  // in place if they are evenly spaced (one token or one head), or gathers them.
  void set_queries() {
    const int64_t first_column = int64_t{head_begin_} * form_.q_dim;
    const int64_t columns = int64_t{num_heads_} * form_.q_dim;
    const bool gathers = item_.task.num_members > 1 || (item_.task.num_rows > 1 && num_heads_ > 1);
    q_ = scratch_.q;
    q_stride_ = form_.q_dim;
    for_members([&](const Member& member) {
      if (body_ == nullptr && !gathers) {
        q_ = form_.q.row(member.row_begin) + first_column;
        q_stride_ = num_heads_ == 1 ? form_.q.stride : form_.q_dim;
        return;
      }
      for (int t = 0; t < member.num_tokens; ++t) {
        const T* const from = form_.q.row(member.row_begin + t) + first_column;
        const int64_t at = member.query_row * int64_t{form_.q_dim} + t * columns;
        if (body_ == nullptr) {
          std::memcpy(scratch_.q + at, from, columns * sizeof(T));
        } else {
          body_->prepare_queries(from, columns, scratch_.q_operands + operands_of(at));
        }
      }
    });
  }

  // Returns the row operands that the body makes of n numbers of query rows.
  int64_t operands_of(int64_t n) const { return n / kBlockK * body_->block_operands; }

  // Runs the blocks of [begin, end) for the member's rows.
  void run_blocks(const Member& member, int begin, int end, const SoftmaxState& state) {
    if (begin >= end) return;
    Layout layout = item_.layout;
    Source source = sources_.source(*member.sequence, item_.index, layout);
    for (int block = begin; block < end; block += kSoftmaxBlock) {
      const Keys keys = {block, std::min(block + kSoftmaxBlock, end)};
      source.load(keys.begin, keys.end);
      if (body_ != nullptr) {
        run_body(source, member, keys, state);
        continue;
      }
      const int end_rows = end_row(member, keys.end);
      for (int row = first_row(member, block); row < end_rows; row += kQueryRows) {
        const Rows rows = {row, std::min(row + kQueryRows, end_rows)};
        score(source, member, rows, keys);
        softmax(member, rows, keys, state);
        add_values(source, member, rows, keys, state);
      }
    }
  }

  // Runs one block with the body for this instruction set.
  void run_body(Source& source, const Member& member, Keys keys, const SoftmaxState& state) {
    const int v_dim = form_.v_dim(), block = keys.begin;
    int hidden[kBlockRows], seen[kBlockRows];
    const T* next_keys[kBlockUnits] = {};
    BlockRows<T> b;
    b.q_stride = operands_of(form_.q_dim);
    b.k_blocks = form_.q_dim / kBlockK;
    b.hidden = hidden;
    b.visible = seen;
    b.scale = form_.scale;
    b.soft_cap = form_.soft_cap;
    b.v_panels = v_dim / kPanelN;
    b.scores = scratch_.scores;
    b.key_stride = set_keys(source, keys, b.keys);
    for (int token = block; token < keys.end;) {
      const TileRun<T> run = source.values(token, keys.end);
      b.value_stride = run.panel_stride;
      for (const T* tiles = run.tiles; token < run.end; token += kBlockK, tiles += kTileElements)
        b.values[(token - block) / kBlockK] = tiles;
    }
    if constexpr (requires { Source::kReadsPages; }) {
      const int next = block + kSoftmaxBlock;
      const int keys_end = member.sequence->first_position + member.sequence->num_rows;
      std::copy_n(b.keys, kBlockUnits, next_keys);
      if (next < keys_end)
        set_keys(source, {next, std::min(next + kSoftmaxBlock, keys_end)}, next_keys);
      b.next_keys = next_keys;
    }
    // Most blocks of a long prompt are seen whole by all rows.
    const bool whole =
        !form_.visible.bounded() && block + kSoftmaxBlock <= member.first_position + 1;
    if (whole) {
      std::fill_n(hidden, kBlockRows, 0);
      std::fill_n(seen, kBlockRows, kSoftmaxBlock);
    }
    const int end_rows = end_row(member, keys.end);
    for (int row = first_row(member, block); row < end_rows; row += b.rows) {
      b.rows = std::min(body_->rows, end_rows - row);
      for (int i = 0; i < b.rows && !whole; ++i) {
        hidden[i] = first_visible(member, row + i, block);
        seen[i] = visible(member, row + i, block);
      }
      b.q = scratch_.q_operands + row * b.q_stride;
      b.m = state.m + row;
      b.l = state.l + row;
      b.o = state.o + int64_t{row} * v_dim;
      body_->run(b);
      b.next_keys = nullptr;  // the body's first call has prefetched them
    }
  }
  // Finds the start of each unit of 32 keys of a block. Returns the stride of their panels.
  static int64_t set_keys(Source& source, Keys keys, const T** units) {
    int64_t stride = 0;
    for (int token = keys.begin; token < keys.end;) {
      const TileRun<T> run = source.keys(token, keys.end);
      stride = run.panel_stride;
      for (const T* tiles = run.tiles; token < run.end; token += kBlockK, tiles += 2 * stride)
        units[(token - keys.begin) / kBlockK] = tiles;
    }
    return stride;
  }

  // scores = q . keys, only for rows that see a key of the run or one behind it.
  void score(Source& source, const Member& member, Rows rows, Keys block) {
    const int k_blocks = form_.q_dim / kBlockK;
    const int hidden_end = block.begin + first_visible(member, rows.begin, block.begin);
    for (int token = block.begin; token < block.end;) {
      const TileRun<T> keys = source.keys(token, block.end);
      const int row = std::max(rows.begin, first_row(member, token));
      if (row >= rows.end) return;
      if (keys.end <= hidden_end) {
        token = keys.end;
        continue;
      }
      products_.run<T>(
          {.x = q_ + row * q_stride_,
           .x_stride = q_stride_,
           .rows = rows.end - row,
           .w = keys.tiles,
           .panel_stride = keys.panel_stride,
           .panels = (keys.end - token + kPanelN - 1) / kPanelN,
           .k_blocks = k_blocks,
           .y = scratch_.scores + (row - rows.begin) * kSoftmaxBlock + token - block.begin,
           .y_stride = kSoftmaxBlock,
           .accumulate = false,
           .scratch = scratch_.product});
      token = keys.end;
    }
  }

  // Keys before a row's first have the score -inf, which gives the probability +0.
  void softmax(const Member& member, Rows rows, Keys keys, const SoftmaxState& state) {
    const auto padded = static_cast<int>(round_up(keys.end - keys.begin, kBlockK));
    const bool capped = form_.soft_cap > 0;
    for (int i = rows.begin; i < rows.end; ++i) {
      const int seen = visible(member, i, keys.begin);
      T* const p = scratch_.p + (i - rows.begin) * kSoftmaxBlock;
      float* const scores = scratch_.scores + (i - rows.begin) * kSoftmaxBlock;
      if (capped) rows_.soft_cap(form_.scale, form_.soft_cap, seen, scores);
      std::fill_n(scores, first_visible(member, i, keys.begin),
                  -std::numeric_limits<float>::infinity());
      const float alpha = rows_.of<T>().softmax({.scores = scores,
                                                 .visible = seen,
                                                 .scale = capped ? 1 : form_.scale,
                                                 .m = state.m + i,
                                                 .l = state.l + i,
                                                 .p = p});
      for (auto k = round_up(seen, kBlockK); k < padded; ++k) p[k] = T{};
      if (alpha != 1) rows_.scale(alpha, form_.v_dim(), state.o + int64_t{i} * form_.v_dim());
    }
  }

  // o += p . values, k-blocks of 32 keys ascending.
  void add_values(Source& source, const Member& member, Rows rows, Keys keys,
                  const SoftmaxState& state) {
    const int v_dim = form_.v_dim();
    const int hidden_end = keys.begin + first_visible(member, rows.begin, keys.begin);
    for (int token = keys.begin; token < keys.end;) {
      const TileRun<T> values = source.values(token, keys.end);
      const int row = std::max(rows.begin, first_row(member, token));
      if (row >= rows.end) return;
      if (values.end <= hidden_end) {
        token = values.end;
        continue;
      }
      products_.run<T>({.x = scratch_.p + (row - rows.begin) * kSoftmaxBlock + token - keys.begin,
                        .x_stride = kSoftmaxBlock,
                        .rows = rows.end - row,
                        .w = values.tiles,
                        .panel_stride = values.panel_stride,
                        .panels = v_dim / kPanelN,
                        .k_blocks = (values.end - token + kBlockK - 1) / kBlockK,
                        .y = state.o + int64_t{row} * v_dim,
                        .y_stride = v_dim,
                        .accumulate = true,
                        .scratch = scratch_.product});
      token = values.end;
    }
  }

  const RowKernels& rows_;
  const ProductKernels& products_;
  const AttentionForm<T>& form_;
  const ItemScratch<T>& scratch_;
  const Sources& sources_;
  const Item item_;
  const int head_begin_, num_heads_, num_rows_;
  const BlockBody<T>* const body_;
  const T* q_ = nullptr;  // set only if body_ is null
  int64_t q_stride_ = 0;
};

}  // namespace hocket
