#include "compute/kernels/delta_net.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "compute/kernels/cases/row_cases.h"
#include "compute/kernels/delta_columns.h"

namespace hocket {
namespace {

using cases::random_row;

struct Form {
  const char* name;
  DeltaNetConfig net;
  DType dtype;
};
std::ostream& operator<<(std::ostream& out, const Form& form) {
  return out << form.name;
}

constexpr DeltaNetConfig kOdd = {
    .num_key_heads = 2, .num_value_heads = 4, .key_dim = 18, .value_dim = 24};
constexpr DeltaNetConfig kGrouped = {
    .num_key_heads = 2, .num_value_heads = 2, .key_dim = 16, .value_dim = 24, .grouped = true};
constexpr DeltaNetConfig kReal = {
    .num_key_heads = 1, .num_value_heads = 2, .key_dim = 128, .value_dim = 128};
constexpr DeltaNetConfig kChannels = {.num_key_heads = 2,
                                      .num_value_heads = 2,
                                      .key_dim = 18,
                                      .value_dim = 24,
                                      .channel_decay = true};
constexpr DeltaNetConfig kRealChannels = {.num_key_heads = 1,
                                          .num_value_heads = 1,
                                          .key_dim = 128,
                                          .value_dim = 128,
                                          .channel_decay = true};
constexpr Form kForms[] = {{"odd_bf16", kOdd, DType::bf16},
                           {"odd_f32", kOdd, DType::f32},
                           {"grouped_bf16", kGrouped, DType::bf16},
                           {"real_bf16", kReal, DType::bf16},
                           {"channels_bf16", kChannels, DType::bf16},
                           {"channels_f32", kChannels, DType::f32},
                           {"real_channels_bf16", kRealChannels, DType::bf16}};

// The rows of a call: one sequence's tokens from its first on.
struct Inputs {
  Inputs(const DeltaNetConfig& net, int tokens, unsigned seed) {
    std::mt19937 random(seed);
    x = random_row(int64_t{tokens} * (net.channels() + net.value_columns()), 1, random);
    gates = random_row(int64_t{tokens} * net.gate_columns(), 1, random);
    taps = random_row(int64_t{kConvTaps} * net.channels(), 0.5, random);
    a_log = random_row(net.num_value_heads, 0.5, random);
    dt_bias = random_row(net.gate_columns() - net.num_value_heads, 1, random);
    norm = random_row(net.value_dim, 1, random);
  }
  std::vector<float> x, gates, taps, a_log, dt_bias, norm;
  float norm_eps = 1e-6f;
};

// The slots of one layer: three states and two blocks, filled with numbers that must not matter.
struct Slots {
  explicit Slots(const DeltaShape& shape)
      : states(3 * shape.state_bytes() / sizeof(float), 7.0f),
        blocks(2 * shape.block_bytes() / sizeof(float), 3.0f),
        layer{shape, reinterpret_cast<std::byte*>(states.data()),
              reinterpret_cast<std::byte*>(blocks.data())} {}
  std::vector<float> states, blocks;
  DeltaLayer layer;
};

// Rows of one call, the tokens from `position` on.
struct Run {
  int position = 0, count = 0;
  const float *x = nullptr, *gates = nullptr;
};

// Plays runs of one sequence, with states in the slots of `states`.
class Player {
 public:
  Player(Isa isa, const Form& form, const Inputs& in, std::span<const StateSlot> states,
         Slots& slots)
      : form_(form),
        in_(in),
        states_(states),
        slots_(slots),
        workers_({.num_workers = isa == Isa::ref ? 1 : 2}),
        backend_(*Backend::create(isa, workers_, delta_net_scratch_bytes(slots.layer.shape))) {}

  int64_t x_columns() const { return form_.net.channels() + form_.net.value_columns(); }
  int64_t gate_columns() const { return form_.net.gate_columns(); }

  // Returns the results of all rows.
  std::vector<float> play(const Run& run) {
    const DeltaNetConfig& net = form_.net;
    Buffer memory = *Buffer::allocate(run.count * round_up(net.value_columns(), kBlockK) * 4 + 64);
    Layout layout(memory.data());
    const MatrixView out = layout.matrix(form_.dtype, run.count, net.value_columns());
    const DeltaSequence sequence = {.row_begin = 0,
                                    .num_rows = run.count,
                                    .first_position = run.position,
                                    .block = 1,
                                    .load_state_at = run.position == 0 ? 0 : -1,
                                    .states = states_};
    delta_net(backend_, {.x = View<const float>(run.x, run.count, x_columns()),
                         .gates = View<const float>(run.gates, run.count, gate_columns()),
                         .taps = in_.taps,
                         .a_log = in_.a_log,
                         .dt_bias = in_.dt_bias,
                         .norm = in_.norm,
                         .norm_eps = in_.norm_eps,
                         .layer = slots_.layer,
                         .sequences = {&sequence, 1},
                         .out = out});
    std::vector<float> all;
    for (int row = 0; row < run.count; ++row)
      for (int c = 0; c < net.value_columns(); ++c)
        all.push_back(form_.dtype == DType::bf16 ? to_float(out.as<Bf16>().row(row)[c])
                                                 : out.as<float>().row(row)[c]);
    return all;
  }

 private:
  const Form& form_;
  const Inputs& in_;
  std::span<const StateSlot> states_;
  Slots& slots_;
  WorkerPool workers_;
  Backend backend_;
};

// Plays tokens [0, inputs) cut into runs, with states kept in the slots of `states`.
std::vector<float> play(Isa isa, const Form& form, const Inputs& in, std::span<const int> runs,
                        std::span<const StateSlot> states, Slots& slots) {
  Player player(isa, form, in, states, slots);
  std::vector<float> all;
  int position = 0;
  for (const int count : runs) {
    const std::vector<float> rows =
        player.play({.position = position,
                     .count = count,
                     .x = in.x.data() + position * player.x_columns(),
                     .gates = in.gates.data() + position * player.gate_columns()});
    all.insert(all.end(), rows.begin(), rows.end());
    position += count;
  }
  return all;
}

// Plays tokens one or a few at a time, each time with rows of `wrong` behind them, which the next
// run computes again; no border is among those.
std::vector<float> play_with_failures(Isa isa, const Form& form, const Inputs& in,
                                      const Inputs& wrong, Slots& slots) {
  constexpr StateSlot kState[] = {{1 << 20, 2}};
  Player player(isa, form, in, kState, slots);
  const int64_t x_columns = player.x_columns(), gate_columns = player.gate_columns();
  const int tokens = static_cast<int>(std::ssize(in.x) / x_columns);
  std::mt19937 random(7);
  std::vector<float> all;
  for (int position = 0; position < tokens;) {
    const int right = std::min<int>(tokens - position, 1 + random() % 4);
    const int end = position + right;
    const int before_border = kDeltaBlock - 1 - end % kDeltaBlock;
    const int fail = std::min({slots.layer.shape.undone_rows, before_border, tokens - end,
                               static_cast<int>(random() % 10)});
    const auto rows_of = [&](const std::vector<float>& from, const std::vector<float>& other,
                             int64_t columns) {
      std::vector<float> rows(from.begin() + position * columns, from.begin() + end * columns);
      rows.insert(rows.end(), other.begin() + end * columns,
                  other.begin() + (end + fail) * columns);
      return rows;
    };
    const std::vector<float> x = rows_of(in.x, wrong.x, x_columns);
    const std::vector<float> gates = rows_of(in.gates, wrong.gates, gate_columns);
    std::vector<float> rows = player.play({position, right + fail, x.data(), gates.data()});
    rows.resize(static_cast<size_t>(right * form.net.value_columns()));
    all.insert(all.end(), rows.begin(), rows.end());
    position = end;
  }
  return all;
}

class DeltaNet : public testing::TestWithParam<Form> {
 protected:
  void SetUp() override { flush_denormals(); }
};

constexpr StateSlot kOneSlot[] = {{1 << 20, 2}};

TEST_P(DeltaNet, EveryBodyHasTheBitsOfTheReference) {
  const Form& form = GetParam();
  constexpr int kRuns[] = {70, 1, 1, 58, 63, 1, 6};
  const Inputs in(form.net, 200, 1);
  Slots slots({form.net, form.dtype});
  const std::vector<float> want = play(Isa::ref, form, in, kRuns, kOneSlot, slots);
  for (const Isa isa : cases::vector_isas()) {
    Slots own({form.net, form.dtype});
    EXPECT_TRUE(cases::same_bits(play(isa, form, in, kRuns, kOneSlot, own), want)) << isa_name(isa);
    const int64_t state = slots.layer.shape.state_bytes() / int64_t{sizeof(float)};
    EXPECT_EQ(std::memcmp(own.states.data() + 2 * state, slots.states.data() + 2 * state,
                          state * sizeof(float)),
              0)
        << isa_name(isa);
  }
}

TEST_P(DeltaNet, NoCutChangesABit) {
  const Form& form = GetParam();
  const Inputs in(form.net, 200, 2);
  const Isa isa = cases::vector_isas().front();
  const int whole[] = {200};
  Slots slots({form.net, form.dtype});
  const std::vector<float> want = play(isa, form, in, whole, kOneSlot, slots);
  const std::vector<int> ones(200, 1);
  Slots by_one({form.net, form.dtype});
  EXPECT_TRUE(cases::same_bits(play(isa, form, in, ones, kOneSlot, by_one), want));
  std::mt19937 random(3);
  for (int round = 0; round < 5; ++round) {
    std::vector<int> cuts;
    for (int remaining = 200; remaining > 0; remaining -= cuts.back())
      cuts.push_back(std::min<int>(remaining, 1 + random() % 90));
    Slots own({form.net, form.dtype});
    EXPECT_TRUE(cases::same_bits(play(isa, form, in, cuts, kOneSlot, own), want));
  }
}

TEST_P(DeltaNet, RowsThatFailedLeaveNoTrace) {
  const Form& form = GetParam();
  const Inputs in(form.net, 200, 8), wrong(form.net, 200, 9);
  const int whole[] = {200};
  for (const Isa isa : {Isa::ref, cases::vector_isas().front()}) {
    Slots slots({form.net, form.dtype});
    const std::vector<float> want = play(isa, form, in, whole, kOneSlot, slots);
    Slots own({.net = form.net, .dtype = form.dtype, .undone_rows = 8});
    EXPECT_TRUE(cases::same_bits(play_with_failures(isa, form, in, wrong, own), want))
        << isa_name(isa);
    const int64_t state = slots.layer.shape.state_bytes() / int64_t{sizeof(float)};
    EXPECT_EQ(std::memcmp(own.states.data() + 2 * state, slots.states.data() + 2 * state,
                          state * sizeof(float)),
              0)
        << isa_name(isa);
  }
}

TEST_P(DeltaNet, AStateThatIsKeptGivesTheSameBits) {
  const Form& form = GetParam();
  const Inputs in(form.net, 200, 4);
  const DeltaNetConfig& net = form.net;
  const Isa isa = cases::vector_isas().front();
  constexpr StateSlot kKept[] = {{64, 0}, {1 << 20, 2}};
  const int whole[] = {200};
  Slots slots({net, form.dtype});
  const std::vector<float> want = play(isa, form, in, whole, kKept, slots);

  // Another sequence begins at the border of token 64 from slot 0, in a slot of its own.
  WorkerPool workers({});
  const DeltaShape shape{net, form.dtype};
  Backend backend = *Backend::create(isa, workers, delta_net_scratch_bytes(shape));
  const int64_t x_columns = net.channels() + net.value_columns(), count = 136;
  Buffer memory = *Buffer::allocate(count * round_up(net.value_columns(), kBlockK) * 4 + 64);
  Layout layout(memory.data());
  const MatrixView out = layout.matrix(form.dtype, count, net.value_columns());
  constexpr StateSlot kFrom[] = {{64, 0}, {1 << 20, 1}};
  const DeltaSequence sequence = {.num_rows = static_cast<int>(count),
                                  .first_position = 64,
                                  .block = 0,
                                  .load_state_at = 64,
                                  .states = kFrom};
  delta_net(
      backend,
      {.x = View<const float>(in.x.data(), 200, x_columns).slice_rows(64, count),
       .gates = View<const float>(in.gates.data(), 200, net.gate_columns()).slice_rows(64, count),
       .taps = in.taps,
       .a_log = in.a_log,
       .dt_bias = in.dt_bias,
       .norm = in.norm,
       .norm_eps = 1e-6f,
       .layer = slots.layer,
       .sequences = {&sequence, 1},
       .out = out});
  std::vector<float> got;
  for (int row = 0; row < count; ++row)
    for (int c = 0; c < net.value_columns(); ++c)
      got.push_back(form.dtype == DType::bf16 ? to_float(out.as<Bf16>().row(row)[c])
                                              : out.as<float>().row(row)[c]);
  const std::vector<float> rest(want.begin() + 64 * net.value_columns(), want.end());
  EXPECT_TRUE(cases::same_bits(got, rest));
  const int64_t state = shape.state_bytes() / int64_t{sizeof(float)};
  EXPECT_EQ(std::memcmp(slots.states.data() + state, slots.states.data() + 2 * state,
                        state * sizeof(float)),
            0);
}

// Computes the recurrence itself in double, one token after the other.
std::vector<double> recurrence(const Form& form, const Inputs& in, int tokens) {
  const DeltaNetConfig& net = form.net;
  const int dk = net.key_dim, dv = net.value_dim, columns = net.channels() + net.value_columns();
  std::vector<double> out;
  std::vector<double> states(int64_t{net.num_value_heads} * dk * dv, 0.0);
  const auto convolved = [&](int t, int column, int channel) {
    double sum = 0;
    for (int tap = 0; tap < kConvTaps; ++tap)
      if (const int from = t - (kConvTaps - 1) + tap; from >= 0)
        sum += double{in.x[int64_t{from} * columns + column]} *
               in.taps[int64_t{tap} * net.channels() + channel];
    return sum / (1 + std::exp(-sum));
  };
  const auto unit = [&](int t, int column, int channel, double factor) {
    std::vector<double> y;
    for (int d = 0; d < dk; ++d) y.push_back(convolved(t, column + d, channel + d));
    const double norm = std::sqrt(std::inner_product(y.begin(), y.end(), y.begin(), 0.0) + 1e-6);
    for (double& v : y) v = v / norm * factor;
    return y;
  };
  for (int t = 0; t < tokens; ++t)
    for (int head = 0; head < net.num_value_heads; ++head) {
      const int group = net.values_a_key(), j = head % group;
      const DeltaColumns at = DeltaColumns::of(net, head / group);
      const auto q = unit(t, at.query, at.query_channel, 1 / std::sqrt(double(dk)));
      const auto k = unit(t, at.key, at.key_channel, 1);
      const float* const gates = in.gates.data() + int64_t{t} * net.gate_columns();
      const auto decay_of = [&](int gate, int bias) {
        const double step = std::log1p(std::exp(double{gates[gate]} + in.dt_bias[bias]));
        return std::exp(-std::exp(double{in.a_log[head]}) * step);
      };
      const int b = net.channel_decay ? net.key_columns() + head : at.b + j;
      const double beta = 1 / (1 + std::exp(-double{gates[b]}));
      std::vector<double> decay(dk);
      for (int d = 0; d < dk; ++d)
        decay[d] =
            net.channel_decay ? decay_of(head * dk + d, head * dk + d) : decay_of(at.a + j, head);
      double* const state = states.data() + int64_t{head} * dk * dv;
      std::vector<double> o(dv, 0.0);
      for (int n = 0; n < dv; ++n) {
        double read = 0;
        for (int d = 0; d < dk; ++d) read += (state[d * dv + n] *= decay[d]) * k[d];
        const double v = convolved(t, at.value + j * dv + n, at.value_channel + j * dv + n);
        for (int d = 0; d < dk; ++d) {
          state[d * dv + n] += k[d] * beta * (v - read);
          o[n] += state[d * dv + n] * q[d];
        }
      }
      const double mean = std::inner_product(o.begin(), o.end(), o.begin(), 0.0) / dv;
      for (int n = 0; n < dv; ++n) {
        const double z = in.x[int64_t{t} * columns + at.z + j * dv + n];
        const double gate = (net.channel_decay ? 1 : z) / (1 + std::exp(-z));
        out.push_back(o[n] / std::sqrt(mean + 1e-6) * in.norm[n] * gate);
      }
    }
  return out;
}

TEST_P(DeltaNet, TheReferenceIsTheRecurrence) {
  const Form& form = GetParam();
  const Inputs in(form.net, 150, 5);
  Slots slots({form.net, form.dtype});
  const int whole[] = {150};
  const std::vector<float> got = play(Isa::ref, form, in, whole, kOneSlot, slots);
  const std::vector<double> want = recurrence(form, in, 150);
  double error = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * (got[i] - want[i]);
    size += want[i] * want[i];
  }
  EXPECT_LT(std::sqrt(error / size), form.dtype == DType::f32 ? 2e-5 : 2e-2);
}

// A token of an example of docs/contracts/arithmetic.md, by its numbers there.
struct ExampleToken {
  std::vector<float> k, q;  // [key_dim]; of k one number is 1 and the others are 0
  float v = 0, beta = 0;
  std::vector<float> divided_by;  // exp(-g) of each decay
  float want = 0;                 // o
};

// Returns x with silu(x) = y, for y >= 0.
float before_silu(double y) {
  double x = y + 1;
  for (int i = 0; i < 100; ++i) {
    const double sigmoid = 1 / (1 + std::exp(-x));
    x -= (x * sigmoid - y) / (sigmoid * (1 + x * (1 - sigmoid)));
  }
  return static_cast<float>(x);
}

// Returns rows whose q, k, v, beta and g are those of the tokens, for one head. The convolution
// passes the newest input on, and the norm's epsilon is so large that it divides by a constant.
Inputs inputs_of(const DeltaNetConfig& net, std::span<const ExampleToken> tokens) {
  constexpr float kMany = 64;  // silu(64) = 64, sigmoid(64) = 1
  Inputs in(net, static_cast<int>(tokens.size()), 1);
  const DeltaColumns at = DeltaColumns::of(net, 0);
  const int columns = net.channels() + net.value_columns();
  std::ranges::fill(in.taps, 0.0f);
  std::fill(in.taps.end() - net.channels(), in.taps.end(), 1.0f);
  std::ranges::fill(in.a_log, 0.0f);
  std::ranges::fill(in.dt_bias, 0.0f);
  in.norm = {net.channel_decay ? 1e6f : 1e6f / kMany};
  in.norm_eps = 1e12f;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const ExampleToken& token = tokens[t];
    float* const x = in.x.data() + t * columns;
    float* const gates = in.gates.data() + t * net.gate_columns();
    for (int d = 0; d < net.key_dim; ++d) {
      // unit(y) is y / sqrt(y.y + 1e-6), times 1 / sqrt(key_dim) in a query.
      const double wanted = token.q[d] * std::sqrt(net.key_dim);
      double size = 0;
      for (const float q : token.q) size += q * q * net.key_dim;
      x[at.query + d] =
          before_silu(size < 1 ? wanted * std::sqrt(1e-6 / (1 - size)) : wanted * kMany);
      x[at.key + d] = token.k[d] * kMany;
    }
    x[at.value] = before_silu(token.v);
    x[at.z] = kMany;
    // softplus(a) = log(divided_by); sigmoid(b) = beta.
    for (size_t d = 0; d < token.divided_by.size(); ++d)
      gates[(net.channel_decay ? 0 : at.a) + d] =
          token.divided_by[d] == 1 ? -100 : std::log(token.divided_by[d] - 1);
    gates[net.channel_decay ? net.key_columns() : at.b] = token.beta == 1 ? 100 : 0;
  }
  return in;
}

void expect_example(const DeltaNetConfig& net, std::span<const ExampleToken> tokens) {
  flush_denormals();
  const Form form = {"example", net, DType::bf16};
  const Inputs in = inputs_of(net, tokens);
  std::vector<float> want;
  for (const ExampleToken& token : tokens) want.push_back(token.want);
  std::vector<Isa> isas = cases::vector_isas();
  isas.push_back(Isa::ref);
  const int whole[] = {static_cast<int>(tokens.size())};
  for (const Isa isa : isas) {
    Slots slots({net, form.dtype});
    EXPECT_EQ(play(isa, form, in, whole, kOneSlot, slots), want) << isa_name(isa);
  }
}

TEST(DeltaNetExamples, OneDecayOfAHead) {
  const ExampleToken tokens[] = {{{1}, {1}, 2, 1, {1}, 2}, {{1}, {0.5}, 3, 0.5, {2}, 1}};
  expect_example({.num_key_heads = 1, .num_value_heads = 1, .key_dim = 1, .value_dim = 1}, tokens);
}

TEST(DeltaNetExamples, DecaysOfChannels) {
  const ExampleToken tokens[] = {{{1, 0}, {0.5, 0.5}, 2, 1, {1, 1}, 1},
                                 {{0, 1}, {0.5, 0.5}, 3, 0.5, {2, 1}, 1.25},
                                 {{1, 0}, {0.5, 0.5}, 1, 1, {2, 4}, 0.6875}};
  expect_example({.num_key_heads = 1,
                  .num_value_heads = 1,
                  .key_dim = 2,
                  .value_dim = 1,
                  .channel_decay = true},
                 tokens);
}

INSTANTIATE_TEST_SUITE_P(Forms, DeltaNet, testing::ValuesIn(kForms),
                         [](const auto& form) { return form.param.name; });

}  // namespace
}  // namespace hocket
