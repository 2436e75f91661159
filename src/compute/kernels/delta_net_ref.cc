// The reference for delta_net.h: one token and one value head at a time, every sum written out.
#include <algorithm>
#include <cmath>
#include <vector>

#include "compute/kernels/arithmetic/lane.h"
#include "compute/kernels/arithmetic/rows.h"
#include "compute/kernels/delta_columns.h"
#include "compute/kernels/delta_net.h"
#include "compute/kernels/reference_operations.h"

namespace hocket::ref {
namespace {

// Adds k-blocks [0, blocks) of sum over k of a(k) * b(k) to `start`, in the order of the canonical
// product.
template <class A, class B>
float add_k_blocks(float start, int blocks, A&& a, B&& b) {
  float c = start;
  for (int block = 0; block < blocks; ++block) {
    float e = 0, o = 0;
    for (int k = block * kBlockK; k < (block + 1) * kBlockK; k += 2) {
      e = std::fma(a(k), b(k), e);
      o = std::fma(a(k + 1), b(k + 1), o);
    }
    c = c + (e + o);
  }
  return c;
}

template <class T>
float rounded(float x) {
  return to_float(from_float<T>(x));
}

template <class T>
class DeltaHead {
 public:
  DeltaHead(Backend& backend, const DeltaNetCall& call, const DeltaSequence& sequence, int head)
      : rows_(backend.rows()),
        call_(call),
        layer_(call.layer),
        shape_(call.layer.shape),
        net_(shape_.net),
        sequence_(sequence),
        head_(head),
        key_head_(head / net_.values_a_key()),
        at_(DeltaColumns::of(net_, key_head_)) {}

  // Computes row `row` of the sequence; the block holds the tokens before it.
  void run(int row) {
    const int position = sequence_.first_position + row, token = position % kDeltaBlock;
    if (position == sequence_.load_state_at) load_state(position);
    if (token == 0) std::fill_n(values(), shape_.values_elements(), T{});
    const std::vector<T> key = unit_of(at_.key, at_.key_channel, row, 1);
    const std::vector<T> query =
        unit_of(at_.query, at_.query_channel, row, 1 / std::sqrt(static_cast<float>(net_.key_dim)));
    for (int d = 0; d < shape_.padded_key(); ++d) keys()[key_offset(token, d)] = key[d];
    add_decay(row, token);
    const std::vector<float> v =
        convolved(at_.value, at_.value_channel, row, net_.values_a_key() * net_.value_dim);
    const float* const own = v.data() + index() * net_.value_dim;
    const Reader by_key = reader(key, token, token), by_query = reader(query, token, token + 1);
    for (int n = 0; n < net_.value_dim; ++n) {
      const float r = read(by_key, n, token);
      values()[value_offset(n, token)] = from_float<T>(beta_ * (own[n] - r));
    }
    std::vector<float> o(net_.value_dim);
    for (int n = 0; n < net_.value_dim; ++n) o[n] = read(by_query, n, token);
    finish(o, sequence_.row_begin + row);
    if (token == kDeltaBlock - 1) store_state(position + 1);
  }

 private:
  int index() const { return head_ % net_.values_a_key(); }
  float* sums() const { return layer_.sums(sequence_.block, head_); }
  T* base() const { return layer_.base<T>(sequence_.block, head_); }
  T* keys() const { return layer_.keys<T>(sequence_.block, key_head_); }
  T* values() const { return layer_.values<T>(sequence_.block, head_); }
  int64_t key_offset(int token, int d) const {
    return net_.channel_decay ? int64_t{token} * shape_.padded_key() + d
                              : packed_offset(token, d, shape_.key_blocks());
  }
  int64_t value_offset(int n, int token) const {
    return token / kBlockK * shape_.value_block_elements() + packed_offset(n, token % kBlockK, 1);
  }
  float key_at(int token, int d) const { return to_float(keys()[key_offset(token, d)]); }
  // The decays of a channel, added up from the border to a token; without tokens none.
  float sum_at(int token, int d) const {
    if (token < 0) return 0;
    return net_.channel_decay ? sums()[int64_t{token} * shape_.padded_key() + d] : sums()[token];
  }

  void finish(std::vector<float>& o, int64_t row) const {
    const float* const z = call_.x.row(row) + at_.z + index() * net_.value_dim;
    T* const y = call_.out.as<T>().row(row) + head_ * net_.value_dim;
    if (!net_.channel_decay)
      return rows_.delta<T>().gated_norm({.x = o.data(),
                                          .w = call_.norm.data(),
                                          .z = z,
                                          .n = net_.value_dim,
                                          .eps = call_.norm_eps,
                                          .y = y});
    rows_.f32.rms_norm(o.data(), call_.norm.data(), net_.value_dim, call_.norm_eps, o.data());
    for (int n = 0; n < net_.value_dim; ++n) y[n] = from_float<T>(o[n] * sigmoid(z[n]));
  }

  void load_state(int border) {
    for (int n = 0; n < shape_.padded_value(); ++n)
      for (int d = 0; d < shape_.padded_key(); ++d) {
        const bool stored = border > 0 && d < net_.key_dim;
        base()[packed_offset(n, d, shape_.key_blocks())] = from_float<T>(
            stored ? layer_.state(sequence_.slot_at(border), head_)[d * shape_.padded_value() + n]
                   : 0.0f);
      }
  }

  // A key or query as it is multiplied with the state at the border, and the tokens [0, count) of
  // the block.
  struct Reader {
    std::vector<float> x;  // [padded key]
    float factor = 1;      // multiplies the product with the state
    std::vector<float> weights = std::vector<float>(kDeltaBlock, 0.0f);
  };
  Reader reader(const std::vector<T>& of, int token, int count) const {
    const bool by_channel = net_.channel_decay;
    const int dims = shape_.padded_key();
    // Operands that decay from one token to another, if channels have decays of their own.
    const auto decayed = [&](auto&& at, int from, int to) {
      std::vector<float> y(dims);
      for (int d = 0; d < dims; ++d)
        y[d] = by_channel ? rounded<T>(at(d) * exp(sum_at(to, d) - sum_at(from, d))) : at(d);
      return y;
    };
    const auto x_at = [&](int d) { return to_float(of[d]); };
    const int before = token / kPanelN * kPanelN - 1;
    Reader out{.x = decayed(x_at, -1, token)};
    if (!by_channel) out.factor = exp(sums()[token]);
    std::vector<float> plain(dims);
    for (int d = 0; d < dims; ++d) plain[d] = x_at(d);
    const std::vector<float> far = decayed(x_at, before, token);
    for (int j = 0; j < count; ++j) {
      const std::vector<float>& row = j <= before ? far : plain;
      const std::vector<float> key =
          decayed([&](int d) { return key_at(j, d); }, j, j <= before ? before : token);
      const float score = add_k_blocks(
          0, shape_.key_blocks(), [&](int d) { return row[d]; }, [&](int d) { return key[d]; });
      out.weights[j] = rounded<T>(by_channel ? score : score * exp(sums()[token] - sums()[j]));
    }
    return out;
  }

  // Column n of the sum over the state at the border and the tokens of the block.
  float read(const Reader& by, int n, int token) const {
    const float from_base =
        add_k_blocks(
            0, shape_.key_blocks(), [&](int d) { return by.x[d]; },
            [&](int d) { return to_float(base()[packed_offset(n, d, shape_.key_blocks())]); }) *
        by.factor;
    return add_k_blocks(
        from_base, token / kBlockK + 1, [&](int j) { return by.weights[j]; },
        [&](int j) { return to_float(values()[value_offset(n, j)]); });
  }

  std::vector<float> convolved(int column, int channel, int row, int count) const {
    std::vector<float> y(count);
    const auto input = [&](int from) -> const float* {
      return from >= 0
                 ? call_.x.row(sequence_.row_begin + from) + column
                 : layer_.conv_inputs(sequence_.block, sequence_.first_position + from) + channel;
    };
    rows_.convolve({.before = {input(row - 3), input(row - 2), input(row - 1)},
                    .x = input(row),
                    .taps = call_.taps.data() + channel,
                    .step = net_.channels(),
                    .rows = 1,
                    .n = count,
                    .y = y.data()});
    return y;
  }
  std::vector<T> unit_of(int column, int channel, int row, float factor) const {
    const std::vector<float> x = convolved(column, channel, row, net_.key_dim);
    std::vector<T> y(shape_.padded_key(), T{});
    rows_.delta<T>().unit(x.data(), net_.key_dim, factor, y.data());
    return y;
  }

  void add_channel_decays(const float* gates, int token) {
    const int dim = net_.key_dim;
    std::vector<float> g(shape_.padded_key(), 0.0f);
    rows_.channel_gates({.a = gates + head_ * dim,
                         .dt_bias = &call_.dt_bias[head_ * dim],
                         .a_log = call_.a_log[head_],
                         .n = dim,
                         .g = g.data()});
    float* const to = sums() + int64_t{token} * shape_.padded_key();
    for (int d = 0; d < shape_.padded_key(); ++d)
      to[d] = token == 0 ? g[d] : sum_at(token - 1, d) + g[d];
    beta_ = sigmoid(gates[net_.key_columns() + head_]);
  }
  void add_decay(int row, int token) {
    const float* const gates = call_.gates.row(sequence_.row_begin + row);
    if (net_.channel_decay) return add_channel_decays(gates, token);
    float g = 0;
    rows_.decay_gates({.a = gates + at_.a + index(),
                       .b = gates + at_.b + index(),
                       .a_log = &call_.a_log[head_],
                       .dt_bias = &call_.dt_bias[head_],
                       .n = 1,
                       .g = &g,
                       .beta = &beta_});
    sums()[token] = token == 0 ? g : sums()[token - 1] + g;
  }

  void store_state(int border) {
    constexpr int kLast = kDeltaBlock - 1;
    float* const state = layer_.state(sequence_.slot_at(border), head_);
    const float* const before = border == kDeltaBlock
                                    ? nullptr
                                    : layer_.state(sequence_.slot_at(border - kDeltaBlock), head_);
    for (int d = 0; d < net_.key_dim; ++d)
      for (int n = 0; n < shape_.padded_value(); ++n) {
        const int64_t at = int64_t{d} * shape_.padded_value() + n;
        const float start = before == nullptr ? 0.0f : before[at] * exp(sum_at(kLast, d));
        state[at] = add_k_blocks(
            start, kDeltaBlocksOfK,
            [&](int j) { return rounded<T>(key_at(j, d) * exp(sum_at(kLast, d) - sum_at(j, d))); },
            [&](int j) { return to_float(values()[value_offset(n, j)]); });
        base()[packed_offset(n, d, shape_.key_blocks())] = from_float<T>(state[at]);
      }
  }

  const RowKernels& rows_;
  const DeltaNetCall& call_;
  const DeltaLayer& layer_;
  const DeltaShape& shape_;
  const DeltaNetConfig& net_;
  const DeltaSequence& sequence_;
  const int head_, key_head_;
  const DeltaColumns at_;
  float beta_ = 0;
};

// Copies the inputs of one row of the sequence, or of one before it (row < 0), in the sequence of
// the channels.
void copy_input(const DeltaNetCall& call, const DeltaSequence& sequence, int row, float* to) {
  const DeltaNetConfig& net = call.layer.shape.net;
  if (row < 0) {
    std::copy_n(call.layer.conv_inputs(sequence.block, sequence.first_position + row),
                net.channels(), to);
    return;
  }
  const float* const x = call.x.row(sequence.row_begin + row);
  for (int h = 0; h < net.num_key_heads; ++h) {
    const DeltaColumns at = DeltaColumns::of(net, h);
    std::copy_n(x + at.query, net.key_dim, to + at.query_channel);
    std::copy_n(x + at.key, net.key_dim, to + at.key_channel);
    std::copy_n(x + at.value, net.values_a_key() * net.value_dim, to + at.value_channel);
  }
}

// Copies the inputs of the three tokens before row `end`.
void copy_state_conv_inputs(const DeltaNetCall& call, const DeltaSequence& sequence, int end,
                            float* to) {
  for (int i = 0; i < kConvTaps - 1; ++i)
    copy_input(call, sequence, end - (kConvTaps - 1) + i,
               to + int64_t{i} * call.layer.shape.net.channels());
}

void store_conv_inputs(const DeltaNetCall& call, const DeltaSequence& sequence) {
  const int first = std::max(0, sequence.num_rows - call.layer.shape.conv_input_rows());
  for (int row = first; row < sequence.num_rows; ++row)
    copy_input(call, sequence, row,
               call.layer.conv_inputs(sequence.block, sequence.first_position + row));
}

void load_conv_inputs(const DeltaNetCall& call, const DeltaSequence& sequence, int border) {
  const int channels = call.layer.shape.net.channels();
  for (int i = 0; i < kConvTaps - 1; ++i) {
    float* const to = call.layer.conv_inputs(sequence.block, border - (kConvTaps - 1) + i);
    if (border == 0) {
      std::fill_n(to, channels, 0.0f);
    } else {
      std::copy_n(call.layer.state_conv_inputs(sequence.slot_at(border)) + int64_t{i} * channels,
                  channels, to);
    }
  }
}

}  // namespace

void delta_net(Backend& backend, const DeltaNetCall& call) {
  with_dtype(call.layer.shape.dtype, [&](auto t) {
    using T = decltype(t);
    backend.workers().run(static_cast<int>(call.sequences.size()), [&](int index, int) {
      const DeltaSequence& sequence = call.sequences[index];
      for (int row = 0; row < sequence.num_rows; ++row) {
        const int position = sequence.first_position + row;
        if (position == sequence.load_state_at) load_conv_inputs(call, sequence, position);
        for (int head = 0; head < call.layer.shape.net.num_value_heads; ++head)
          DeltaHead<T>(backend, call, sequence, head).run(row);
        if ((position + 1) % kDeltaBlock == 0)
          copy_state_conv_inputs(call, sequence, row + 1,
                                 call.layer.state_conv_inputs(sequence.slot_at(position + 1)));
      }
      store_conv_inputs(call, sequence);
    });
  });
}

}  // namespace hocket::ref
