// One key head, with its value heads, of one sequence in a delta net: the unit that a worker takes.
// Private to the operations; the order of all sums is that of delta_net.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/kernels/delta_columns.h"
#include "compute/kernels/delta_net.h"
#include "compute/kernels/product_kernels.h"
#include "compute/kernels/row_kernels.h"
#include "compute/tensor/buffer.h"

namespace hocket {

// The working memory of one item.
template <class T>
struct DeltaScratch {
  // Rows of the block in progress: first those of keys, behind them those of queries.
  T* x = nullptr;              // [2 * kDeltaBlock][padded key]
  float* from_base = nullptr;  // [2 * kDeltaBlock][padded value]: x . base
  float* scores = nullptr;     // [2 * kDeltaBlock][kDeltaBlock]: x . keys
  float* values = nullptr;     // [kDeltaBlock][value heads of the item * value_dim]
  float* projected = nullptr;  // [key_dim] output of the convolution
  T* weights = nullptr;        // [2 * kDeltaBlock][kDeltaBlock]: decayed scores
  // [kDeltaBlock][value heads of the item]: gates, their factors and results
  float *a = nullptr, *b = nullptr, *a_log = nullptr, *dt_bias = nullptr;
  float *g = nullptr, *beta = nullptr;
  float *factors = nullptr, *negated = nullptr;  // [kDeltaBlock]
  T* columns = nullptr;                          // [key_dim][kDeltaBlock]: decayed keys, transposed
  std::byte* product = nullptr;

  void lay(Layout& layout, const DeltaShape& shape) {
    const int64_t group = shape.net.values_a_key();
    x = layout.array<T>(2 * kDeltaBlock * shape.padded_key());
    from_base = layout.array<float>(2 * kDeltaBlock * shape.padded_value());
    scores = layout.array<float>(2 * kDeltaBlock * kDeltaBlock);
    values = layout.array<float>(kDeltaBlock * group * shape.net.value_dim);
    projected = layout.array<float>(shape.net.key_dim);
    weights = layout.array<T>(2 * kDeltaBlock * kDeltaBlock);
    for (float** const of : {&a, &b, &a_log, &dt_bias, &g, &beta})
      *of = layout.array<float>(kDeltaBlock * group);
    factors = layout.array<float>(kDeltaBlock);
    negated = layout.array<float>(kDeltaBlock);
    columns = layout.array<T>(int64_t{shape.net.key_dim} * kDeltaBlock);
    const int most_rows = std::max(2 * kDeltaBlock, shape.net.key_dim);
    product = layout.array<std::byte>(
        product_scratch_bytes(most_rows, std::max(shape.key_blocks(), kDeltaBlocksOfK)));
  }
};

template <class T>
class DeltaItem {
 public:
  DeltaItem(const Backend& backend, const DeltaNetCall& call, const DeltaScratch<T>& scratch,
            const DeltaSequence& sequence, int key_head)
      : rows_(backend.rows()),
        products_(backend.products()),
        call_(call),
        shape_(call.layer.shape),
        net_(shape_.net),
        scratch_(scratch),
        sequence_(sequence),
        key_head_(key_head),
        at_(DeltaColumns::of(net_, key_head)) {}

  void run() {
    run_blocks([&](const Rows& rows) { run_rows(rows); },
               [&](int end, int border_before) { close(end, border_before); });
  }

 protected:
  // Rows [row, row + count) of the sequence, which are the tokens from `first` on of a block.
  struct Rows {
    int row, first, count;
  };

  // Calls run_rows() for the rows of each block, and close() behind a full one.
  template <class RunRows, class Close>
  void run_blocks(RunRows&& run_rows, Close&& close) {
    for (int row = 0; row < sequence_.num_rows;) {
      const int position = sequence_.first_position + row;
      if (position == sequence_.opens_at) open(position);
      const int first = position - delta_border(position);
      const int count = std::min(kDeltaBlock - first, sequence_.num_rows - row);
      run_rows({.row = row, .first = first, .count = count});
      row += count;
      if (first + count == kDeltaBlock) close(row, position - first);
    }
    for (int row = std::max(0, sequence_.num_rows - (kConvTaps - 1)); row < sequence_.num_rows;
         ++row)
      copy_inputs(row, call_.layer.tail(sequence_.block, sequence_.first_position + row));
  }

  int group() const { return net_.values_a_key(); }
  int value_head(int j) const { return key_head_ * group() + j; }

  // Returns the projected row of a token, `column` of it, or, for a token before the rows of the
  // sequence (row < 0), `channel` of the kept inputs.
  const float* input(int row, int column, int channel) const {
    if (row >= 0) return call_.x.row(sequence_.row_begin + row) + column;
    return call_.layer.tail(sequence_.block, sequence_.first_position + row) + channel;
  }
  // Calls f(column, channel, count) for the channels of this item.
  template <class F>
  void for_channels(F&& f) const {
    f(at_.query, at_.query_channel, net_.key_dim);
    f(at_.key, at_.key_channel, net_.key_dim);
    f(at_.value, at_.value_channel, group() * net_.value_dim);
  }
  void copy_inputs(int row, float* to) const {
    for_channels([&](int column, int channel, int count) {
      std::copy_n(input(row, column, channel), count, to + channel);
    });
  }
  // Keeps the inputs of the three tokens before row `end` with the state behind them.
  void keep_tail(int end, int slot) const {
    for (int i = 0; i < kConvTaps - 1; ++i)
      copy_inputs(end - (kConvTaps - 1) + i,
                  call_.layer.state_tail(slot) + int64_t{i} * net_.channels());
  }

  // Fills the block slot from the state at a border.
  void open(int border) {
    const DeltaLayer& layer = call_.layer;
    const int slot = border == 0 ? -1 : sequence_.slot_at(border);
    for (int i = 0; i < kConvTaps - 1; ++i) {
      float* const tail = layer.tail(sequence_.block, border - (kConvTaps - 1) + i);
      for_channels([&](int, int channel, int count) {
        if (border == 0) {
          std::fill_n(tail + channel, count, 0.0f);
        } else {
          std::copy_n(layer.state_tail(slot) + int64_t{i} * net_.channels() + channel, count,
                      tail + channel);
        }
      });
    }
    for (int j = 0; j < group(); ++j) {
      T* const base = layer.base<T>(sequence_.block, value_head(j));
      if (border == 0) {
        std::fill_n(base, shape_.base_elements(), T{});
      } else {
        round_state(layer.state(slot, value_head(j)), base);
      }
    }
  }

  void round_state(const float* state, T* base) const {
    block_kernels().round_state({.state = state,
                                 .width = shape_.padded_value(),
                                 .key_dim = net_.key_dim,
                                 .key_blocks = shape_.key_blocks(),
                                 .base = base});
  }
  const DeltaBlockKernels<T>& block_kernels() const { return rows_.delta_block<T>(); }

  void run_rows(const Rows& rows) {
    if (rows.count == 1) fetch(rows.first);
    if (rows.first == 0)
      for (int j = 0; j < group(); ++j)
        std::fill_n(call_.layer.values<T>(sequence_.block, value_head(j)), shape_.values_elements(),
                    T{});
    make_gates(rows);
    for (int i = 0; i < rows.count; ++i) project(rows, i);
    multiply({.rows = 2 * rows.count,
              .w = call_.layer.keys<T>(sequence_.block, key_head_),
              .panels = (rows.first + rows.count + kPanelN - 1) / kPanelN,
              .y = scratch_.scores,
              .y_stride = kDeltaBlock});
    for (int j = 0; j < group(); ++j) run_head(rows, j);
  }

  // Fetches the numbers that a single token reads from all over the block, while it is projected,
  // and the inputs that the next head begins with.
  void fetch(int token) const {
    constexpr int kLine = 64, kFirstOfBase = 4096;
    const auto lines = [](const void* from, int64_t bytes) {
      for (int64_t at = 0; at < bytes; at += kLine)
        __builtin_prefetch(static_cast<const char*>(from) + at, 0, 2);
    };
    const DeltaLayer& layer = call_.layer;
    const int block = sequence_.block;
    lines(layer.keys<T>(block, key_head_),
          (token / kPanelN + 1) * shape_.panel_elements() * int64_t{sizeof(T)});
    lines(layer.base<T>(block, value_head(0)), kFirstOfBase);
    for (int j = 0; j < group(); ++j)
      lines(values_of(j, 0),
            (token / kBlockK + 1) * shape_.value_block_elements() * int64_t{sizeof(T)});
    if (key_head_ + 1 == net_.num_key_heads) return;
    const DeltaColumns next = DeltaColumns::of(net_, key_head_ + 1);
    for (int row = -(kConvTaps - 1); row < 0; ++row) {
      const float* const tail = layer.tail(block, sequence_.first_position + row);
      lines(tail + next.query_channel, net_.key_dim * int64_t{sizeof(float)});
      lines(tail + next.key_channel, net_.key_dim * int64_t{sizeof(float)});
      lines(tail + next.value_channel, group() * net_.value_dim * int64_t{sizeof(float)});
    }
  }

  // Makes the gates of all rows, and puts the decays into the block.
  void make_gates(const Rows& rows) const {
    const int heads = group();
    for (int i = 0; i < rows.count; ++i) {
      const float* const gates = call_.gates.row(sequence_.row_begin + rows.row + i);
      const int64_t at = int64_t{i} * heads;
      std::copy_n(gates + at_.a, heads, scratch_.a + at);
      std::copy_n(gates + at_.b, heads, scratch_.b + at);
      std::copy_n(call_.a_log.data() + value_head(0), heads, scratch_.a_log + at);
      std::copy_n(call_.dt_bias.data() + value_head(0), heads, scratch_.dt_bias + at);
    }
    rows_.decay_gates({.a = scratch_.a,
                       .b = scratch_.b,
                       .a_log = scratch_.a_log,
                       .dt_bias = scratch_.dt_bias,
                       .n = int64_t{rows.count} * heads,
                       .g = scratch_.g,
                       .beta = scratch_.beta});
    for (int j = 0; j < heads; ++j) {
      float* const sums = call_.layer.sums(sequence_.block, value_head(j));
      for (int i = 0; i < rows.count; ++i) {
        const int token = rows.first + i;
        const float g = scratch_.g[int64_t{i} * heads + j];
        sums[token] = token == 0 ? g : sums[token - 1] + g;
      }
    }
  }

  // Makes query, key and values of a token from its row of the sequence.
  void project_row(const Rows& rows, int i) {
    const int row = rows.row + i;
    const auto convolve = [&](int column, int channel, int count, float* y) {
      ConvolutionRow conv{
          .taps = call_.taps.data() + channel, .step = net_.channels(), .n = count, .y = y};
      for (int tap = 0; tap < kConvTaps; ++tap)
        conv.rows[tap] = input(row - (kConvTaps - 1) + tap, column, channel);
      rows_.convolve(conv);
    };
    const int padded = shape_.padded_key(), dim = net_.key_dim;
    const auto unit = [&](float factor, T* y) {
      rows_.delta<T>().unit(scratch_.projected, dim, factor, y);
      std::fill(y + dim, y + padded, T{});
    };
    convolve(at_.key, at_.key_channel, dim, scratch_.projected);
    unit(1, scratch_.x + int64_t{i} * padded);
    convolve(at_.query, at_.query_channel, dim, scratch_.projected);
    unit(1 / std::sqrt(static_cast<float>(dim)), scratch_.x + int64_t{rows.count + i} * padded);
    convolve(at_.value, at_.value_channel, group() * net_.value_dim,
             scratch_.values + int64_t{i} * group() * net_.value_dim);
  }

  // Makes query, key and values of a token, and puts its key into the block.
  void project(const Rows& rows, int i) {
    project_row(rows, i);
    const T* const key = scratch_.x + int64_t{i} * shape_.padded_key();
    T* const to = call_.layer.keys<T>(sequence_.block, key_head_) +
                  packed_offset(rows.first + i, 0, shape_.key_blocks());
    for (int d = 0; d < shape_.padded_key(); d += 2)
      std::memcpy(to + d * kPanelN, key + d, 2 * sizeof(T));
  }

  // One product of rows of this item.
  struct Part {
    const T* x = nullptr;  // null: scratch_.x
    int64_t x_stride = 0;
    int rows = 0;
    const T* w = nullptr;
    int64_t panel_stride = 0;  // 0: that of keys and base
    int panels = 0;
    int k_blocks = 0;  // 0: those of a key
    float* y = nullptr;
    int64_t y_stride = 0;
    bool accumulate = false;
  };
  void multiply(const Part& part) const {
    products_.run<T>({.x = part.x == nullptr ? scratch_.x : part.x,
                      .x_stride = part.x == nullptr ? shape_.padded_key() : part.x_stride,
                      .rows = part.rows,
                      .w = part.w,
                      .panel_stride = part.panel_stride == 0
                                          ? int64_t{shape_.key_blocks()} * kTileElements
                                          : part.panel_stride,
                      .panels = part.panels,
                      .k_blocks = part.k_blocks == 0 ? shape_.key_blocks() : part.k_blocks,
                      .y = part.y,
                      .y_stride = part.y_stride,
                      .accumulate = part.accumulate,
                      .scratch = scratch_.product});
  }

  void run_head(const Rows& rows, int j) {
    multiply({.rows = 2 * rows.count,
              .w = call_.layer.base<T>(sequence_.block, value_head(j)),
              .panels = shape_.value_panels(),
              .y = scratch_.from_base,
              .y_stride = shape_.padded_value()});
    block_kernels().decay({.sums = call_.layer.sums(sequence_.block, value_head(j)),
                           .first = rows.first,
                           .count = rows.count,
                           .products = scratch_.from_base,
                           .width = shape_.padded_value(),
                           .scores = scratch_.scores,
                           .weights = scratch_.weights});
    read_values(rows, j);
    for (int i = 0; i < rows.count; ++i) finish(rows, i, j);
  }

  struct Range {
    int begin, count;
  };
  // from_base[rows] += weights[rows] . values, for one k-block of tokens.
  void add_values(int j, Range rows, int k_block) const {
    if (rows.count == 0) return;
    multiply({.x = scratch_.weights + int64_t{rows.begin} * kDeltaBlock + k_block * kBlockK,
              .x_stride = kDeltaBlock,
              .rows = rows.count,
              .w = values_of(j, k_block),
              .panel_stride = kTileElements,
              .panels = shape_.value_panels(),
              .k_blocks = 1,
              .y = scratch_.from_base + int64_t{rows.begin} * shape_.padded_value(),
              .y_stride = shape_.padded_value(),
              .accumulate = true});
  }
  T* values_of(int j, int k_block) const {
    return call_.layer.values<T>(sequence_.block, value_head(j)) +
           k_block * shape_.value_block_elements();
  }

  // Computes v' of the rows, and reads the values with both keys and queries.
  void read_values(const Rows& rows, int j) {
    const int cut = std::clamp(kBlockK - rows.first, 0, rows.count), late = rows.count - cut;
    correct(rows, {0, cut}, 0, j);
    if (cut == 0) {
      add_values(j, {0, 2 * late}, 0);
    } else {
      for (const int begin : {cut, rows.count + cut}) add_values(j, {begin, late}, 0);
    }
    correct(rows, {cut, late}, 1, j);
  }
  // The same for rows whose tokens lie in one k-block, behind those of the k-blocks before it.
  void correct(const Rows& rows, Range range, int k_block, int j) {
    if (range.count == 0) return;
    constexpr int kFewRows = 4;  // so few queries are read beside their keys
    const int width = shape_.padded_value(), values = group() * net_.value_dim;
    const int query = rows.count + range.begin;
    const T* const weights = scratch_.weights + k_block * kBlockK;
    const bool few = range.count <= kFewRows;
    block_kernels().correct(
        {.first = rows.first + range.begin - k_block * kBlockK,
         .count = range.count,
         .weights = weights + int64_t{range.begin} * kDeltaBlock,
         .query_weights = few ? weights + int64_t{query} * kDeltaBlock : nullptr,
         .v = scratch_.values + int64_t{range.begin} * values + int64_t{j} * net_.value_dim,
         .beta = scratch_.beta + int64_t{range.begin} * group() + j,
         .v_stride = values,
         .beta_stride = group(),
         .n = net_.value_dim,
         .read = scratch_.from_base + int64_t{range.begin} * width,
         .results = scratch_.from_base + int64_t{query} * width,
         .width = width,
         .values = values_of(j, k_block)});
    if (!few) add_values(j, {query, range.count}, k_block);
  }

  void finish(const Rows& rows, int i, int j) const {
    const int64_t row = sequence_.row_begin + rows.row + i;
    const int dim = net_.value_dim;
    rows_.delta<T>().gated_norm(
        {.x = scratch_.from_base + int64_t{rows.count + i} * shape_.padded_value(),
         .w = call_.norm.data(),
         .z = call_.x.row(row) + at_.z + j * dim,
         .n = dim,
         .eps = call_.norm_eps,
         .y = call_.out.as<T>().row(row) + int64_t{value_head(j)} * dim});
  }

  // Computes the state at the border behind a full block, whose last row is `end` - 1, and begins
  // the next block.
  void close(int end, int border_before) {
    const DeltaLayer& layer = call_.layer;
    const int border = border_before + kDeltaBlock, slot = sequence_.slot_at(border);
    keep_tail(end, slot);
    for (int j = 0; j < group(); ++j) {
      float* const state = layer.state(slot, value_head(j));
      const float* const sums = layer.sums(sequence_.block, value_head(j));
      for (int t = 0; t < kDeltaBlock; ++t) scratch_.negated[t] = -sums[t];
      rows_.exp_row(scratch_.negated, kDeltaBlock, -sums[kDeltaBlock - 1], scratch_.factors);
      block_kernels().decay_keys({.keys = layer.keys<T>(sequence_.block, key_head_),
                                  .key_dim = net_.key_dim,
                                  .key_blocks = shape_.key_blocks(),
                                  .factors = scratch_.factors,
                                  .columns = scratch_.columns});
      if (border_before == 0) {
        std::fill_n(state, shape_.state_elements(), 0.0f);
      } else {
        const float* const before = layer.state(sequence_.slot_at(border_before), value_head(j));
        if (before != state) std::copy_n(before, shape_.state_elements(), state);
        float factor = 0;
        rows_.exp_row(sums + kDeltaBlock - 1, 1, 0, &factor);
        rows_.scale(factor, shape_.state_elements(), state);
      }
      add_columns(j, state);
    }
  }
  // state += columns . values, and the block's base becomes that state.
  void add_columns(int j, float* state) const {
    for (int k_block = 0; k_block < kDeltaBlocksOfK; ++k_block)
      multiply({.x = scratch_.columns + k_block * kBlockK,
                .x_stride = kDeltaBlock,
                .rows = net_.key_dim,
                .w = values_of(j, k_block),
                .panel_stride = kTileElements,
                .panels = shape_.value_panels(),
                .k_blocks = 1,
                .y = state,
                .y_stride = shape_.padded_value(),
                .accumulate = true});
    round_state(state, call_.layer.base<T>(sequence_.block, value_head(j)));
  }

  const RowKernels& rows_;
  const ProductKernels& products_;
  const DeltaNetCall& call_;
  const DeltaShape& shape_;
  const DeltaNetConfig& net_;
  const DeltaScratch<T>& scratch_;
  const DeltaSequence& sequence_;
  const int key_head_;
  const DeltaColumns at_;
};

}  // namespace hocket
