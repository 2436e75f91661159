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
  T* x = nullptr;                       // [2 * kDeltaBlock][padded key]
  float* from_base = nullptr;           // [2 * kDeltaBlock][padded value]: x . base
  float* scores = nullptr;              // [2 * kDeltaBlock][kDeltaBlock]: x . keys
  float* values = nullptr;              // [kDeltaBlock][value heads of the item * value_dim]
  float* projected = nullptr;           // [key_dim] output of the convolution
  T* weights = nullptr;                 // [2 * kDeltaBlock][kDeltaBlock]: decayed scores
  float *g = nullptr, *beta = nullptr;  // [value heads of the item], [kDeltaBlock][the same]
  float *factors = nullptr, *negated = nullptr;  // [kDeltaBlock]
  T* corrected = nullptr;                        // [padded value]
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
    g = layout.array<float>(group);
    beta = layout.array<float>(kDeltaBlock * group);
    factors = layout.array<float>(kDeltaBlock);
    negated = layout.array<float>(kDeltaBlock);
    corrected = layout.array<T>(shape.padded_value());
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
    keep_inputs();
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
  // Copies the inputs of the three tokens before row `end` of the sequence to the tail of a state.
  void copy_inputs(int end, float* to) const {
    for (int i = 0; i < kConvTaps - 1; ++i)
      for_channels([&](int column, int channel, int count) {
        const float* const from = input(end - (kConvTaps - 1) + i, column, channel);
        std::copy_n(from, count, to + int64_t{i} * net_.channels() + channel);
      });
  }
  // Keeps the inputs of the last rows in the block slot.
  void keep_inputs() const {
    for (int row = std::max(0, sequence_.num_rows - shape_.tail_rows()); row < sequence_.num_rows;
         ++row) {
      float* const to = call_.layer.tail(sequence_.block, sequence_.first_position + row);
      for_channels([&](int column, int channel, int count) {
        std::copy_n(input(row, column, channel), count, to + channel);
      });
    }
  }

  // Fills the block slot from the state at a border.
  void open(int border) {
    const DeltaLayer& layer = call_.layer;
    const int slot = border == 0 ? -1 : sequence_.slot_at(border);
    for (int i = 0; i < kConvTaps - 1; ++i) {
      float* const to = layer.tail(sequence_.block, border - (kConvTaps - 1) + i);
      for_channels([&](int, int channel, int count) {
        if (border == 0) {
          std::fill_n(to + channel, count, 0.0f);
        } else {
          std::copy_n(layer.state_tail(slot) + int64_t{i} * net_.channels() + channel, count,
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

  // Packs a state, rounded: n = value, k = key.
  void round_state(const float* state, T* base) const {
    const auto round = rows_.of<T>().round;
    const int width = shape_.padded_value(), blocks = shape_.key_blocks();
    for (int panel = 0; panel < shape_.value_panels(); ++panel)
      for (int pair = 0; pair < (net_.key_dim + 1) / 2; ++pair) {
        T even[kPanelN], odd[kPanelN] = {};
        const float* const from = state + int64_t{2 * pair} * width + panel * kPanelN;
        round(from, kPanelN, even);
        if (2 * pair + 1 < net_.key_dim) round(from + width, kPanelN, odd);
        T* const to = base + packed_offset(panel * kPanelN, 2 * pair, blocks);
        for (int n = 0; n < kPanelN; ++n) {
          to[2 * n] = even[n];
          to[2 * n + 1] = odd[n];
        }
      }
  }

  void run_rows(const Rows& rows) {
    if (rows.first == 0)
      for (int j = 0; j < group(); ++j)
        std::fill_n(call_.layer.values<T>(sequence_.block, value_head(j)), shape_.values_elements(),
                    T{});
    for (int i = 0; i < rows.count; ++i) project(rows, i);
    multiply({.rows = 2 * rows.count,
              .w = call_.layer.keys<T>(sequence_.block, key_head_),
              .panels = (rows.first + rows.count + kPanelN - 1) / kPanelN,
              .y = scratch_.scores,
              .y_stride = kDeltaBlock});
    for (int j = 0; j < group(); ++j) run_head(rows, j);
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

  // Makes query, key, values and gates of a token, and puts its key and decay into the block.
  void project(const Rows& rows, int i) {
    project_row(rows, i);
    const int row = rows.row + i, token = rows.first + i, padded = shape_.padded_key();
    const T* const key = scratch_.x + int64_t{i} * padded;
    T* const keys = call_.layer.keys<T>(sequence_.block, key_head_);
    for (int pair = 0; pair < padded / 2; ++pair)
      std::memcpy(keys + packed_offset(token, 2 * pair, shape_.key_blocks()), key + 2 * pair,
                  2 * sizeof(T));
    const float* const gates = call_.gates.row(sequence_.row_begin + row);
    rows_.decay_gates({.a = gates + at_.a,
                       .b = gates + at_.b,
                       .a_log = call_.a_log.data() + value_head(0),
                       .dt_bias = call_.dt_bias.data() + value_head(0),
                       .n = group(),
                       .g = scratch_.g,
                       .beta = scratch_.beta + int64_t{i} * group()});
    for (int j = 0; j < group(); ++j) {
      float* const sums = call_.layer.sums(sequence_.block, value_head(j));
      sums[token] = token == 0 ? scratch_.g[j] : sums[token - 1] + scratch_.g[j];
    }
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
    const int width = shape_.padded_value();
    const float* const sums = call_.layer.sums(sequence_.block, value_head(j));
    multiply({.rows = 2 * rows.count,
              .w = call_.layer.base<T>(sequence_.block, value_head(j)),
              .panels = shape_.value_panels(),
              .y = scratch_.from_base,
              .y_stride = width});
    rows_.exp_row(sums + rows.first, rows.count, 0, scratch_.factors);
    for (int i = 0; i < rows.count; ++i) {
      const int token = rows.first + i, query = rows.count + i;
      for (const int row : {i, query}) {
        rows_.scale(scratch_.factors[i], width, scratch_.from_base + int64_t{row} * width);
        rows_.delta<T>().decayed({.x = scratch_.scores + int64_t{row} * kDeltaBlock,
                                  .sums = sums,
                                  .sum = sums[token],
                                  .count = row == i ? token : token + 1,
                                  .padded = kDeltaBlock,
                                  .y = scratch_.weights + int64_t{row} * kDeltaBlock});
      }
    }
    correct(rows, j);
    for (const auto& [begin, end] : k_block_rows(rows))
      if (begin < end)
        add_values(j, {rows.count + begin, end - begin}, {0, (rows.first + begin) / kBlockK + 1});
    for (int i = 0; i < rows.count; ++i) finish(rows, i, j);
  }

  struct Range {
    int begin, count;
  };
  // from_base[rows] += weights[rows] . values, for some k-blocks of tokens.
  void add_values(int j, Range rows, Range k_blocks) const {
    multiply({.x = scratch_.weights + int64_t{rows.begin} * kDeltaBlock +
                   int64_t{k_blocks.begin} * kBlockK,
              .x_stride = kDeltaBlock,
              .rows = rows.count,
              .w = call_.layer.values<T>(sequence_.block, value_head(j)) +
                   int64_t{k_blocks.begin} * kTileElements,
              .panel_stride = int64_t{kDeltaBlocksOfK} * kTileElements,
              .panels = shape_.value_panels(),
              .k_blocks = k_blocks.count,
              .y = scratch_.from_base + int64_t{rows.begin} * shape_.padded_value(),
              .y_stride = shape_.padded_value(),
              .accumulate = true});
  }

  // The rows whose tokens lie in the first and in the second k-block: [begin, end) each.
  struct Rows2 {
    int begin, end;
  };
  static std::array<Rows2, 2> k_block_rows(const Rows& rows) {
    const int cut = std::clamp(kBlockK - rows.first, 0, rows.count);
    return {{{0, cut}, {cut, rows.count}}};
  }

  // Computes v' of the rows, one after the other, since each needs those before it.
  void correct(const Rows& rows, int j) {
    const auto halves = k_block_rows(rows);
    correct_in_block(rows, halves[0].begin, halves[0].end, j);
    if (halves[1].begin == halves[1].end) return;
    add_values(j, {halves[1].begin, halves[1].end - halves[1].begin}, {0, 1});
    correct_in_block(rows, halves[1].begin, halves[1].end, j);
  }
  void correct_in_block(const Rows& rows, int begin, int end, int j) {
    const int width = shape_.padded_value(), dim = net_.value_dim;
    T* const values = call_.layer.values<T>(sequence_.block, value_head(j));
    for (int i = begin; i < end; ++i) {
      const int token = rows.first + i;
      add_values(j, {i, 1}, {token / kBlockK, 1});
      rows_.delta<T>().correction(scratch_.values + (int64_t{i} * group() + j) * dim,
                                  scratch_.from_base + int64_t{i} * width,
                                  scratch_.beta[int64_t{i} * group() + j], dim, scratch_.corrected);
      for (int n = 0; n < dim; ++n)
        values[packed_offset(n, token, kDeltaBlocksOfK)] = scratch_.corrected[n];
    }
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
    const int width = shape_.padded_value();
    const int64_t panel = int64_t{kDeltaBlocksOfK} * kTileElements;
    copy_inputs(end, layer.state_tail(slot));
    for (int j = 0; j < group(); ++j) {
      float* const state = layer.state(slot, value_head(j));
      const float* const sums = layer.sums(sequence_.block, value_head(j));
      for (int t = 0; t < kDeltaBlock; ++t) scratch_.negated[t] = -sums[t];
      rows_.exp_row(scratch_.negated, kDeltaBlock, -sums[kDeltaBlock - 1], scratch_.factors);
      decay_keys();
      if (border_before == 0) {
        std::fill_n(state, shape_.state_elements(), 0.0f);
      } else {
        const float* const before = layer.state(sequence_.slot_at(border_before), value_head(j));
        if (before != state) std::copy_n(before, shape_.state_elements(), state);
        float factor = 0;
        rows_.exp_row(sums + kDeltaBlock - 1, 1, 0, &factor);
        rows_.scale(factor, shape_.state_elements(), state);
      }
      multiply({.x = scratch_.columns,
                .x_stride = kDeltaBlock,
                .rows = net_.key_dim,
                .w = layer.values<T>(sequence_.block, value_head(j)),
                .panel_stride = panel,
                .panels = shape_.value_panels(),
                .k_blocks = kDeltaBlocksOfK,
                .y = state,
                .y_stride = width,
                .accumulate = true});
      round_state(state, layer.base<T>(sequence_.block, value_head(j)));
    }
  }

  // columns[d][t] = round(key d of token t * factors[t])
  void decay_keys() const {
    const T* const keys = call_.layer.keys<T>(sequence_.block, key_head_);
    for (int d = 0; d < net_.key_dim; d += 2) {
      float even[kDeltaBlock], odd[kDeltaBlock];
      for (int t = 0; t < kDeltaBlock; t += kPanelN) {
        const T* const from = keys + packed_offset(t, d, shape_.key_blocks());
        const float* const factors = scratch_.factors + t;
        for (int n = 0; n < kPanelN; ++n) {
          even[t + n] = to_float(from[2 * n]) * factors[n];
          odd[t + n] = to_float(from[2 * n + 1]) * factors[n];
        }
      }
      T* const to = scratch_.columns + int64_t{d} * kDeltaBlock;
      rows_.of<T>().round(even, kDeltaBlock, to);
      if (d + 1 < net_.key_dim) rows_.of<T>().round(odd, kDeltaBlock, to + kDeltaBlock);
    }
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
