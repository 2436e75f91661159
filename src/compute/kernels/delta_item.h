// One key head, with its value heads, of one sequence in a delta net: the unit that a worker takes.
// Private to the operations; the order of all sums is that of delta_net.h.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compute/kernels/delta_columns.h"
#include "compute/kernels/delta_net.h"
#include "compute/kernels/delta_prefetch.h"
#include "compute/kernels/product_kernels.h"
#include "compute/kernels/row_kernels.h"
#include "compute/tensor/buffer.h"

namespace hocket {

// The working memory of one item.
template <class T>
struct DeltaScratch {
  // Rows of the block in progress: first those of keys, behind them those of queries.
  T* x = nullptr;              // [2 * kDeltaBlock][padded key]
  float* from_base = nullptr;  // [2 * kDeltaBlock][value heads][padded value]: x . base
  float* scores = nullptr;     // [2 * kDeltaBlock][kDeltaBlock]: x . keys
  float* values = nullptr;     // [kDeltaBlock][value heads of the item * value_dim]
  float* projected = nullptr;  // [kDeltaBlock][key_dim] output of the convolution
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
    from_base = layout.array<float>(2 * kDeltaBlock * group * shape.padded_value());
    scores = layout.array<float>(2 * kDeltaBlock * kDeltaBlock);
    values = layout.array<float>(kDeltaBlock * group * shape.net.value_dim);
    projected = layout.array<float>(int64_t{kDeltaBlock} * shape.net.key_dim);
    weights = layout.array<T>(2 * kDeltaBlock * kDeltaBlock);
    for (float** const of : {&a, &b, &a_log, &dt_bias, &g, &beta})
      *of = layout.array<float>(kDeltaBlock * group);
    factors = layout.array<float>(kDeltaBlock);
    negated = layout.array<float>(kDeltaBlock);
    columns = layout.array<T>(int64_t{shape.net.key_dim} * kDeltaBlock);
    const int max_rows = std::max(2 * kDeltaBlock, shape.net.key_dim);
    product = layout.array<std::byte>(
        product_scratch_bytes(max_rows, std::max(shape.key_blocks(), kDeltaBlocksOfK)));
  }
};

template <class T>
class DeltaItem {
 public:
  // `index` numbers the key heads of all sequences, those of one sequence side by side.
  DeltaItem(const Backend& backend, const DeltaNetCall& call, const DeltaScratch<T>& scratch,
            int index)
      : rows_(backend.rows()),
        products_(backend.products()),
        call_(call),
        shape_(call.layer.shape),
        net_(shape_.net),
        scratch_(scratch),
        sequence_(call.sequences[index / net_.num_key_heads]),
        key_head_(index % net_.num_key_heads),
        at_(DeltaColumns::of(net_, key_head_)),
        ahead_(call, index + 1) {}

  void run() {
    run_blocks([&](const Rows& rows) { run_rows(rows); },
               [&](int end, int border_before) { store_state(end, border_before); });
  }

 protected:
  // Rows [row, row + count) of the sequence, which are the tokens from `first` on of a block.
  struct Rows {
    int row, first, count;
  };

  // Calls run_rows() for the rows of each block, and store_state() behind a full one.
  template <class RunRows, class StoreState>
  void run_blocks(RunRows&& run_rows, StoreState&& store_state) {
    for (int row = 0; row < sequence_.num_rows;) {
      const int position = sequence_.first_position + row;
      if (position == sequence_.load_state_at) load_state(position);
      const int first = position - delta_border(position);
      const int count = std::min(kDeltaBlock - first, sequence_.num_rows - row);
      run_rows({.row = row, .first = first, .count = count});
      row += count;
      if (first + count == kDeltaBlock) store_state(row, position - first);
    }
    store_inputs();
  }

  int group() const { return net_.values_a_key(); }
  int value_head(int j) const { return key_head_ * group() + j; }

  // Returns the projected row of a token, `column` of it, or, for a token before the rows of the
  // sequence (row < 0), `channel` of the kept inputs.
  const float* input(int row, int column, int channel) const {
    if (row >= 0) return call_.x.row(sequence_.row_begin + row) + column;
    return call_.layer.conv_inputs(sequence_.block, sequence_.first_position + row) + channel;
  }
  // Calls f(column, channel, count) for the channels of this item.
  template <class F>
  void for_channels(F&& f) const {
    f(at_.query, at_.query_channel, net_.key_dim);
    f(at_.key, at_.key_channel, net_.key_dim);
    f(at_.value, at_.value_channel, group() * net_.value_dim);
  }
  // Copies the inputs of the three tokens before row `end` of the sequence to the conv_inputs
  // of a state.
  void copy_inputs(int end, float* to) const {
    for (int i = 0; i < kConvTaps - 1; ++i)
      for_channels([&](int column, int channel, int count) {
        const float* const from = input(end - (kConvTaps - 1) + i, column, channel);
        std::copy_n(from, count, to + int64_t{i} * net_.channels() + channel);
      });
  }
  // Keeps the inputs of the last rows in the block slot.
  void store_inputs() const {
    for (int row = std::max(0, sequence_.num_rows - shape_.conv_input_rows());
         row < sequence_.num_rows; ++row) {
      float* const to = call_.layer.conv_inputs(sequence_.block, sequence_.first_position + row);
      for_channels([&](int column, int channel, int count) {
        std::copy_n(input(row, column, channel), count, to + channel);
      });
    }
  }

  // Fills the block slot from the state at a border.
  void load_state(int border) {
    const DeltaLayer& layer = call_.layer;
    const int slot = border == 0 ? -1 : sequence_.slot_at(border);
    for (int i = 0; i < kConvTaps - 1; ++i) {
      float* const to = layer.conv_inputs(sequence_.block, border - (kConvTaps - 1) + i);
      for_channels([&](int, int channel, int count) {
        if (border == 0) {
          std::fill_n(to + channel, count, 0.0f);
        } else {
          std::copy_n(layer.state_conv_inputs(slot) + int64_t{i} * net_.channels() + channel, count,
                      to + channel);
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
    if (rows.first == 0)
      for (int j = 0; j < group(); ++j)
        std::fill_n(call_.layer.values<T>(sequence_.block, value_head(j)), shape_.values_elements(),
                    T{});
    make_gates(rows);
    project_keys(rows);
    for (int i = 0; i < rows.count; ++i) pack_key(rows, i);
    project_others(rows);
    multiply({.rows = 2 * rows.count,
              .w = call_.layer.keys<T>(sequence_.block, key_head_),
              .panels = (rows.first + rows.count + kPanelN - 1) / kPanelN,
              .y = scratch_.scores,
              .y_stride = kDeltaBlock});
    ahead_.fetch();
    multiply({.rows = 2 * rows.count,
              .w = call_.layer.base<T>(sequence_.block, value_head(0)),
              .panels = group() * shape_.value_panels(),
              .y = scratch_.from_base,
              .y_stride = base_stride()});
    for (int j = 0; j < group(); ++j) run_head(rows, j);
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

  struct Channels {
    int column, channel, count;
  };
  void convolve(const Rows& rows, const Channels& part, float* y) {
    const auto input_at = [&](int row) { return input(row, part.column, part.channel); };
    rows_.convolve(
        {.before = {input_at(rows.row - 3), input_at(rows.row - 2), input_at(rows.row - 1)},
         .x = input_at(rows.row),
         .x_stride = call_.x.stride,
         .taps = call_.taps.data() + part.channel,
         .step = net_.channels(),
         .rows = rows.count,
         .n = part.count,
         .y = y,
         .y_stride = part.count});
    ahead_.fetch();
  }
  // Make the keys, and the queries and values, of tokens from their rows of the sequence.
  void project_keys(const Rows& rows) {
    convolve(rows, {at_.key, at_.key_channel, net_.key_dim}, scratch_.projected);
    make_units(rows, 1, at_.value, scratch_.x);
  }
  void project_others(const Rows& rows) {
    convolve(rows, {at_.query, at_.query_channel, net_.key_dim}, scratch_.projected);
    make_units(rows, 1 / std::sqrt(static_cast<float>(net_.key_dim)), at_.z,
               scratch_.x + int64_t{rows.count} * shape_.padded_key());
    convolve(rows, {at_.value, at_.value_channel, group() * net_.value_dim}, scratch_.values);
  }
  // Makes the unit rows of keys or queries. Also fetches the columns from `later` on, as many as
  // values, whose rows lie far apart.
  void make_units(const Rows& rows, float factor, int later, T* y) {
    const int dim = net_.key_dim;
    for (int i = 0; i < rows.count; ++i, y += shape_.padded_key()) {
      const float* const row = call_.x.row(sequence_.row_begin + rows.row + i) + later;
      for (int at = 0; at < group() * net_.value_dim; at += 16) __builtin_prefetch(row + at, 0, 2);
      rows_.delta<T>().unit(scratch_.projected + int64_t{i} * dim, dim, factor, y);
      std::fill(y + dim, y + shape_.padded_key(), T{});
    }
  }

  // Puts the key of a token into the block. Early, because the product that reads it would wait for
  // such small stores.
  void pack_key(const Rows& rows, int i) const {
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

  // Returns the products of a row with the base of a value head.
  float* from_base(int row, int j) const {
    return scratch_.from_base + row * base_stride() + int64_t{j} * shape_.padded_value();
  }
  int64_t base_stride() const { return int64_t{group()} * shape_.padded_value(); }

  void run_head(const Rows& rows, int j) {
    block_kernels().decay({.sums = call_.layer.sums(sequence_.block, value_head(j)),
                           .first = rows.first,
                           .count = rows.count,
                           .products = from_base(0, j),
                           .stride = base_stride(),
                           .width = shape_.padded_value(),
                           .scores = scratch_.scores,
                           .weights = scratch_.weights});
    ahead_.fetch();
    read_values(rows, j);
    ahead_.fetch();
    for (int i = 0; i < rows.count; ++i) finish(rows, i, j);
    ahead_.fetch();
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
              .y = from_base(rows.begin, j),
              .y_stride = base_stride(),
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
  // The same for rows whose tokens lie in one k-block. The values of earlier k-blocks are added
  // already.
  void correct(const Rows& rows, Range range, int k_block, int j) {
    if (range.count == 0) return;
    constexpr int kFewRows = 4;  // so few queries are read beside their keys
    const int values = group() * net_.value_dim;
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
         .read = from_base(range.begin, j),
         .results = from_base(query, j),
         .stride = base_stride(),
         .width = shape_.padded_value(),
         .values = values_of(j, k_block)});
    if (!few) add_values(j, {query, range.count}, k_block);
  }

  void finish(const Rows& rows, int i, int j) const {
    const int64_t row = sequence_.row_begin + rows.row + i;
    const int dim = net_.value_dim;
    rows_.delta<T>().gated_norm({.x = from_base(rows.count + i, j),
                                 .w = call_.norm.data(),
                                 .z = call_.x.row(row) + at_.z + j * dim,
                                 .n = dim,
                                 .eps = call_.norm_eps,
                                 .y = call_.out.as<T>().row(row) + int64_t{value_head(j)} * dim});
  }

  // Computes the state at the border behind a full block, whose last row is `end` - 1, and begins
  // the next block.
  void store_state(int end, int border_before) {
    const DeltaLayer& layer = call_.layer;
    const int border = border_before + kDeltaBlock, slot = sequence_.slot_at(border);
    copy_inputs(end, layer.state_conv_inputs(slot));
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
  DeltaPrefetch<T> ahead_;
};

}  // namespace hocket
