// One head of one sequence in a delta net with a decay for each channel (KDA): the unit that a
// worker takes. Private to the operations; the order of all sums is that of delta_net.h.
#pragma once

#include "compute/kernels/delta_item.h"

namespace hocket {

// The working memory of one item, beside that of DeltaScratch.
template <class T>
struct ChannelScratch {
  DeltaScratch<T> delta;
  T* decayed = nullptr;     // [2 * kDeltaBlock][padded key]: rows of x
  T* row = nullptr;         // [padded key]
  T* near = nullptr;        // the panel in progress, its keys decayed up to one token
  float* decays = nullptr;  // [padded key]

  void lay(Layout& layout, const DeltaShape& shape) {
    delta.lay(layout, shape);
    if (!shape.net.channel_decay) return;
    decayed = layout.array<T>(int64_t{2} * kDeltaBlock * shape.padded_key());
    row = layout.array<T>(shape.padded_key());
    near = layout.array<T>(shape.panel_elements());
    decays = layout.array<float>(shape.padded_key());
  }
};

template <class T>
class ChannelDeltaItem : DeltaItem<T> {
 public:
  ChannelDeltaItem(const Backend& backend, const DeltaNetCall& call,
                   const ChannelScratch<T>& scratch, int index)
      : DeltaItem<T>(backend, call, scratch.delta, index),
        own_(scratch),
        layer_(call.layer),
        head_(this->key_head_),
        sums_(layer_.sums(sequence_.block, head_)),
        keys_(layer_.keys<T>(sequence_.block, head_)),
        values_(layer_.values<T>(sequence_.block, head_)),
        base_(layer_.base<T>(sequence_.block, head_)) {}

  void run() {
    this->run_blocks([&](const Rows& rows) { run_rows(rows); },
                     [&](int end, int border_before) { store_state(end, border_before); });
  }

 private:
  using Item = DeltaItem<T>;
  using Rows = Item::Rows;
  using Item::call_, Item::net_, Item::rows_, Item::scratch_, Item::sequence_, Item::shape_;

  int padded() const { return shape_.padded_key(); }
  // Returns the decays, added up from the border to a token.
  float* sums(int token) const { return sums_ + int64_t{token} * padded(); }
  // Returns those from the border to the begin of a panel; null: they are zero.
  const float* sums_before(int panel) const {
    return panel == 0 ? nullptr : sums(panel * kPanelN - 1);
  }
  T* key(int token) const { return keys_ + int64_t{token} * padded(); }

  void decay(const T* x, const float* sums, const float* from, T* y) const {
    rows_.template delta<T>().channel_decay(
        {.x = x, .sums = sums, .from = from, .n = padded(), .y = y});
  }
  // Puts the key of a token, decayed up to `sums`, into a packed weight with n = its place.
  void pack_decayed(int token, const float* sums, int n, T* to) const {
    decay(key(token), sums, this->sums(token), own_.row);
    for (int pair = 0; pair < padded() / 2; ++pair)
      std::memcpy(to + packed_offset(n, 2 * pair, shape_.key_blocks()), own_.row + 2 * pair,
                  2 * sizeof(T));
  }

  void run_rows(const Rows& rows) {
    if (rows.first == 0) std::fill_n(values_, shape_.values_elements(), T{});
    this->project_keys(rows);
    this->project_others(rows);
    for (int i = 0; i < rows.count; ++i) keep_token(rows, i);
    for (int i = 0; i < rows.count;) {
      const int panel = (rows.first + i) / kPanelN;
      const int count = std::min(kPanelN * (panel + 1) - rows.first - i, rows.count - i);
      score_far(rows, {i, count}, panel);
      i += count;
    }
    for (int i = 0; i < rows.count; ++i) score_near(rows, i);
    decay_rows(rows, {0, rows.count}, nullptr);
    this->multiply({.x = own_.decayed,
                    .x_stride = padded(),
                    .rows = 2 * rows.count,
                    .w = base_,
                    .panels = shape_.value_panels(),
                    .y = scratch_.from_base,
                    .y_stride = this->base_stride()});
    this->read_values(rows, 0);
    for (int i = 0; i < rows.count; ++i) finish(rows, i);
  }

  // Makes the gates of a token, and puts its key and decays into the block.
  void keep_token(const Rows& rows, int i) {
    const int token = rows.first + i, dim = net_.key_dim;
    std::copy_n(scratch_.x + int64_t{i} * padded(), padded(), key(token));
    const float* const gates = call_.gates.row(sequence_.row_begin + rows.row + i);
    std::fill_n(own_.decays, padded(), 0.0f);
    rows_.channel_gates({.a = gates + int64_t{head_} * dim,
                         .dt_bias = call_.dt_bias.data() + int64_t{head_} * dim,
                         .a_log = call_.a_log[head_],
                         .n = dim,
                         .g = own_.decays});
    float* const to = sums(token);
    for (int d = 0; d < padded(); ++d)
      to[d] = token == 0 ? own_.decays[d] : sums(token - 1)[d] + own_.decays[d];
    scratch_.beta[i] = 1;
    rows_.template delta<float>().sigmoid_gate(gates + net_.key_columns() + head_, 1,
                                               scratch_.beta + i);
  }

  using Range = Item::Range;
  // decayed = the keys and queries of some rows, decayed from `from` up to themselves.
  void decay_rows(const Rows& rows, Range range, const float* from) const {
    for (int i = range.begin; i < range.begin + range.count; ++i)
      for (const int row : {i, rows.count + i}) {
        const int64_t at = int64_t{row} * padded();
        decay(scratch_.x + at, sums(rows.first + i), from, own_.decayed + at);
      }
  }

  // Scores of rows whose tokens lie in one panel, for the tokens of the panels before it.
  void score_far(const Rows& rows, Range range, int panel) const {
    if (panel == 0) return;
    T* const far = layer_.far<T>(sequence_.block, head_, panel);
    if ((rows.first + range.begin) % kPanelN == 0)
      for (int token = 0; token < panel * kPanelN; ++token)
        pack_decayed(token, sums_before(panel), token, far);
    decay_rows(rows, range, sums_before(panel));
    for (const int row : {range.begin, rows.count + range.begin})
      this->multiply({.x = own_.decayed + int64_t{row} * padded(),
                      .x_stride = padded(),
                      .rows = range.count,
                      .w = far,
                      .panels = panel,
                      .y = scratch_.scores + int64_t{row} * kDeltaBlock,
                      .y_stride = kDeltaBlock});
  }

  // Scores of a token's key and query for the tokens of its own panel; then all of its weights.
  void score_near(const Rows& rows, int i) const {
    const int token = rows.first + i, first = token / kPanelN * kPanelN;
    for (int j = first; j <= token; ++j) pack_decayed(j, sums(token), j - first, own_.near);
    this->multiply({.x = scratch_.x + int64_t{i} * padded(),
                    .x_stride = int64_t{rows.count} * padded(),
                    .rows = 2,
                    .w = own_.near,
                    .panels = 1,
                    .y = scratch_.scores + int64_t{i} * kDeltaBlock + first,
                    .y_stride = int64_t{rows.count} * kDeltaBlock});
    for (const int row : {i, rows.count + i}) {
      const int count = row == i ? token : token + 1;
      T* const weights = scratch_.weights + int64_t{row} * kDeltaBlock;
      rows_.template of<T>().round(scratch_.scores + int64_t{row} * kDeltaBlock, count, weights);
      std::fill(weights + count, weights + kDeltaBlock, T{});
    }
  }

  void finish(const Rows& rows, int i) const {
    const int64_t row = sequence_.row_begin + rows.row + i;
    const int dim = net_.value_dim;
    float* const o = this->from_base(rows.count + i, 0);
    rows_.f32.rms_norm(o, call_.norm.data(), dim, call_.norm_eps, o);
    rows_.template delta<float>().sigmoid_gate(call_.x.row(row) + this->at_.z, dim, o);
    rows_.template of<T>().round(o, dim,
                                 call_.out.template as<T>().row(row) + int64_t{head_} * dim);
  }

  void store_state(int end, int border_before) {
    const int border = border_before + kDeltaBlock, slot = sequence_.slot_at(border);
    const float* const last = sums(kDeltaBlock - 1);
    this->copy_inputs(end, layer_.state_conv_inputs(slot));
    float* const state = layer_.state(slot, head_);
    if (border_before == 0) {
      std::fill_n(state, shape_.state_elements(), 0.0f);
    } else {
      const float* const before = layer_.state(sequence_.slot_at(border_before), head_);
      if (before != state) std::copy_n(before, shape_.state_elements(), state);
      rows_.exp_row(last, net_.key_dim, 0, own_.decays);
      for (int d = 0; d < net_.key_dim; ++d)
        rows_.scale(own_.decays[d], shape_.padded_value(),
                    state + int64_t{d} * shape_.padded_value());
    }
    for (int token = 0; token < kDeltaBlock; ++token) {
      decay(key(token), last, sums(token), own_.row);
      for (int d = 0; d < net_.key_dim; ++d)
        scratch_.columns[int64_t{d} * kDeltaBlock + token] = own_.row[d];
    }
    this->add_columns(0, state);
  }

  const ChannelScratch<T>& own_;
  const DeltaLayer& layer_;
  const int head_;
  float* const sums_;
  T* const keys_;
  T* const values_;
  T* const base_;
};

}  // namespace hocket
