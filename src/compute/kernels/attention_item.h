// How attention runs over any source of keys: the rows of one item (a task and some heads) against
// their keys, block by block in the order of attention.h. attention_run.h shares the items among
// the workers.   Private to the operations; thread: any worker, with scratch of its own.
//
// A Source holds the keys that the heads of one item share. A softmax block [block, block_end) is
// first loaded, then read as tiles:
//
//   void       load(int block, int block_end);
//   TileRun<T> keys(int token, int block_end);     token: block, or where the last run ended
//   TileRun<T> values(int token, int block_end);
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>

#include "compute/kernels/attention.h"
#include "compute/kernels/product_kernels.h"
#include "compute/kernels/row_kernels.h"
#include "compute/tensor/buffer.h"

namespace hocket {

// Query rows (tokens times heads) that meet a block at a time: enough to reuse its tiles, few
// enough to stay in cache.
inline constexpr int kQueryRows = 64;
// Tiles for the tokens up to `end`: of keys, whole panels of 16; of values, for each panel of 16
// dims whole k-blocks of 32.
template <class T>
struct TileRun {
  const T* tiles = nullptr;
  int64_t panel_stride = 0;
  int end = 0;
};

// What all items of one run have in common. An item is a task and `group` neighbouring heads (fewer
// at the end) that share keys.
template <class T>
struct AttentionForm {
  View<T> q;          // [rows, num_heads * q_dim]
  View<T> out;        // [rows, num_heads * out_dim]
  int num_heads = 0;  // of queries
  int group = 1;
  int q_dim = 0;                   // a multiple of 32
  int value_dim = 0, out_dim = 0;  // out has zeros behind value_dim
  float scale = 1;
  int rows_max = 0;  // query rows of the largest item

  int v_dim() const { return static_cast<int>(round_up(value_dim, kPanelN)); }
  int items_per_task() const { return (num_heads + group - 1) / group; }
};

// The running softmax of some rows.
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

// One worker's scratch for an item; query rows are [token][head of the group].
template <class T>
struct ItemScratch {
  T* q = nullptr;           // [rows][q_dim], where heads are gathered
  T* p = nullptr;           // [kQueryRows][kSoftmaxBlock]
  float* scores = nullptr;  // [kQueryRows][kSoftmaxBlock]
  SoftmaxState all, next;
  std::byte* product = nullptr;

  void lay(Layout& layout, const AttentionForm<T>& form) {
    q = layout.array<T>(form.group == 1 ? 0 : int64_t{form.rows_max} * form.q_dim);
    p = layout.array<T>(kQueryRows * kSoftmaxBlock);
    scores = layout.array<float>(kQueryRows * kSoftmaxBlock);
    all.lay(layout, form.rows_max, form.v_dim());
    next.lay(layout, form.rows_max, form.v_dim());
    const int k_blocks = std::max(form.q_dim, kSoftmaxBlock) / kBlockK;
    product = layout.array<std::byte>(product_scratch_bytes(kQueryRows, k_blocks));
  }
};

// One item. Tokens and query rows are counted from the item's first.
template <class T, class Source>
class ItemRun {
 public:
  struct Place {
    int64_t row_begin = 0;  // in the batch
    int num_tokens = 0, first_position = 0;
    int head_begin = 0, num_heads = 0;
  };
  ItemRun(const Backend& backend, const AttentionForm<T>& form, const ItemScratch<T>& scratch,
          Source source, const Place& place)
      : rows_(backend.rows()),
        products_(backend.products()),
        form_(form),
        scratch_(scratch),
        source_(source),
        place_(place) {
    set_queries();
  }

  int num_keys() const { return place_.first_position + place_.num_tokens; }

  // The segment from key `begin` on, for the rows that see it.
  void run_segment(int begin, const SoftmaxState& state) {
    const int first = first_row(begin), v_dim = form_.v_dim();
    std::fill(state.m + first, state.m + num_rows(), -std::numeric_limits<float>::infinity());
    std::fill(state.l + first, state.l + num_rows(), 0.0f);
    std::fill(state.o + int64_t{first} * v_dim, state.o + int64_t{num_rows()} * v_dim, 0.0f);
    const int end = std::min(begin + kAttentionSegment, num_keys());
    for (int block = begin; block < end; block += kSoftmaxBlock) {
      const int block_end = std::min(block + kSoftmaxBlock, end);
      source_.load(block, block_end);
      for (int row = first_row(block); row < num_rows(); row += kQueryRows) {
        const Rows rows = {row, std::min(row + kQueryRows, num_rows())};
        score(rows, block, block_end);
        softmax(rows, block, block_end, state);
        add_values(rows, block, block_end, state);
      }
    }
  }

  // all = all and then the segment from `begin` on, for the rows that see it.
  void merge(int begin, const SoftmaxState& all, const SoftmaxState& next) {
    const int v_dim = form_.v_dim();
    for (int i = first_row(begin); i < num_rows(); ++i) {
      rows_.merge({.m = all.m + i,
                   .l = all.l + i,
                   .o = all.o + int64_t{i} * v_dim,
                   .m_next = next.m[i],
                   .l_next = next.l[i],
                   .o_next = next.o + int64_t{i} * v_dim,
                   .dim = v_dim});
    }
  }

  void run_all_segments() {
    run_segment(0, scratch_.all);
    for (int begin = kAttentionSegment; begin < num_keys(); begin += kAttentionSegment) {
      run_segment(begin, scratch_.next);
      merge(begin, scratch_.all, scratch_.next);
    }
    finish(scratch_.all);
  }

  void finish(const SoftmaxState& all) {
    const int value_dim = form_.value_dim, out_dim = form_.out_dim;
    for (int i = 0; i < num_rows(); ++i) {
      const int64_t head = place_.head_begin + i % place_.num_heads;
      T* const to = form_.out.row(place_.row_begin + i / place_.num_heads) + head * out_dim;
      rows_.of<T>().divide(all.o + int64_t{i} * form_.v_dim(), all.l[i], value_dim, to);
      std::fill(to + value_dim, to + out_dim, T{});
    }
  }

 private:
  // Query rows that meet a block together.
  struct Rows {
    int begin, end;
  };

  int num_rows() const { return place_.num_tokens * place_.num_heads; }
  // The first row that sees key `token`; those after it do too.
  int first_row(int token) const {
    return std::max(0, token - place_.first_position) * place_.num_heads;
  }

  // Rows of one token or of one head lie evenly spaced in q; others are gathered.
  void set_queries() {
    const int64_t first_column = int64_t{place_.head_begin} * form_.q_dim;
    q_ = form_.q.row(place_.row_begin) + first_column;
    q_stride_ = place_.num_tokens == 1 ? form_.q_dim : form_.q.stride;
    if (place_.num_tokens == 1 || place_.num_heads == 1) return;
    const int64_t columns = int64_t{place_.num_heads} * form_.q_dim;
    for (int t = 0; t < place_.num_tokens; ++t)
      std::memcpy(scratch_.q + t * columns, form_.q.row(place_.row_begin + t) + first_column,
                  columns * sizeof(T));
    q_ = scratch_.q;
    q_stride_ = form_.q_dim;
  }

  // scores = q . keys, only for rows that see a key of the run.
  void score(Rows rows, int block, int block_end) {
    const int k_blocks = form_.q_dim / kBlockK;
    for (int token = block; token < block_end;) {
      const TileRun<T> keys = source_.keys(token, block_end);
      const int row = std::max(rows.begin, first_row(token));
      if (row >= rows.end) return;
      products_.run<T>({.x = q_ + row * q_stride_,
                        .x_stride = q_stride_,
                        .rows = rows.end - row,
                        .w = keys.tiles,
                        .panel_stride = keys.panel_stride,
                        .panels = (keys.end - token + kPanelN - 1) / kPanelN,
                        .k_blocks = k_blocks,
                        .y = scratch_.scores + (row - rows.begin) * kSoftmaxBlock + token - block,
                        .y_stride = kSoftmaxBlock,
                        .accumulate = false,
                        .scratch = scratch_.product});
      token = keys.end;
    }
  }

  void softmax(Rows rows, int block, int block_end, const SoftmaxState& state) {
    const auto padded = static_cast<int>(round_up(block_end - block, kBlockK));
    for (int i = rows.begin; i < rows.end; ++i) {
      const int seen = place_.first_position + i / place_.num_heads + 1 - block;
      const int visible = std::min(seen, kSoftmaxBlock);
      T* const p = scratch_.p + (i - rows.begin) * kSoftmaxBlock;
      const float alpha =
          rows_.of<T>().softmax({.scores = scratch_.scores + (i - rows.begin) * kSoftmaxBlock,
                                 .visible = visible,
                                 .scale = form_.scale,
                                 .m = state.m + i,
                                 .l = state.l + i,
                                 .p = p});
      for (auto k = round_up(visible, kBlockK); k < padded; ++k) p[k] = T{};
      if (alpha != 1) rows_.scale(alpha, form_.v_dim(), state.o + int64_t{i} * form_.v_dim());
    }
  }

  // o += p . values, k-blocks of 32 keys ascending.
  void add_values(Rows rows, int block, int block_end, const SoftmaxState& state) {
    const int v_dim = form_.v_dim();
    for (int token = block; token < block_end;) {
      const TileRun<T> values = source_.values(token, block_end);
      const int row = std::max(rows.begin, first_row(token));
      if (row >= rows.end) return;
      products_.run<T>({.x = scratch_.p + (row - rows.begin) * kSoftmaxBlock + token - block,
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
  Source source_;
  const Place place_;
  const T* q_ = nullptr;
  int64_t q_stride_ = 0;
};

}  // namespace hocket
