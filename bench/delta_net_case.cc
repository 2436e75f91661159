#include "bench/delta_net_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "compute/kernels/delta_net.h"
#include "compute/tensor/buffer.h"

namespace hocket {
namespace {

constexpr DType kType = DType::bf16;
// Slots are used in turn, so that no cache holds those of the next call.
constexpr int kSlots = 160, kStates = 8;
// A token in the middle of a block reads as much of it as tokens do on average.
constexpr int kPosition = kDeltaBlock / 2;
constexpr int kPromptRows = 512, kCheckedRows = 130;

std::vector<float> random_floats(int64_t count, float deviation) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& x : numbers) x = normal(random);
  return numbers;
}

// The slots and the weights of one layer, and the rows of calls.
class DeltaNetBench {
 public:
  static Result<std::shared_ptr<DeltaNetBench>> create(Backend& measured, Backend& ref);

  KernelCase decode_case(int sequences);
  KernelCase prefill_case(int rows);

 private:
  DeltaNetBench(Backend& measured, Backend& ref) : measured_(measured), ref_(ref) {}
  // Computes the tokens from `position` on, the rows of each sequence one after another.
  void run(Backend& backend, std::span<const int> slots, int position, int rows_each);
  double check();
  std::span<const std::byte> results(int rows) const {
    return {out_.data(), static_cast<size_t>(rows * kBenchNet.value_columns() * size_of(kType))};
  }

  // Each token of a block's middle is computed again and again, as drafts are.
  const DeltaShape shape_ = {.net = kBenchNet, .dtype = kType, .undone_rows = 1};
  const DeltaNetWork work_ = delta_net_work(shape_);
  Backend &measured_, &ref_;
  Buffer states_, blocks_, out_;
  std::vector<float> x_, gates_, taps_, a_log_, dt_bias_, norm_;
  std::vector<StateSlot> state_slots_;
  std::vector<DeltaSequence> sequences_;
  double ref_seconds_ = 0;  // as check() returns; 0: not known yet
};

Result<std::shared_ptr<DeltaNetBench>> DeltaNetBench::create(Backend& measured, Backend& ref) {
  std::shared_ptr<DeltaNetBench> bench(new DeltaNetBench(measured, ref));
  const DeltaShape& shape = bench->shape_;
  const DeltaNetConfig& net = kBenchNet;
  HOCKET_TRY(bench->states_, Buffer::allocate(kStates * shape.state_bytes()));
  HOCKET_TRY(bench->blocks_, Buffer::allocate(kSlots * shape.block_bytes()));
  HOCKET_TRY(bench->out_,
             Buffer::allocate(int64_t{kPromptRows} * net.value_columns() * size_of(kType)));
  std::memset(bench->states_.data(), 0, static_cast<size_t>(bench->states_.bytes()));
  std::memset(bench->blocks_.data(), 0, static_cast<size_t>(bench->blocks_.bytes()));
  bench->x_ = random_floats(kPromptRows * (net.channels() + net.value_columns()), 1);
  bench->gates_ = random_floats(int64_t{kPromptRows} * net.gate_columns(), 1);
  bench->taps_ = random_floats(int64_t{kConvTaps} * net.channels(), 0.5f);
  bench->a_log_ = random_floats(net.num_value_heads, 0.5f);
  bench->dt_bias_ = random_floats(net.gate_columns() - net.num_value_heads, 1);
  bench->norm_ = random_floats(net.value_dim, 1);
  return bench;
}

void DeltaNetBench::run(Backend& backend, std::span<const int> slots, int position, int rows_each) {
  const DeltaNetConfig& net = kBenchNet;
  const int rows = static_cast<int>(slots.size()) * rows_each;
  state_slots_.clear();
  for (const int slot : slots)
    state_slots_.push_back({.end = position + rows_each, .slot = slot % kStates});
  sequences_.clear();
  for (size_t i = 0; i < slots.size(); ++i)
    sequences_.push_back({.row_begin = static_cast<int>(i) * rows_each,
                          .num_rows = rows_each,
                          .first_position = position,
                          .block = slots[i],
                          .load_state_at = position == 0 ? 0 : -1,
                          .states = std::span(state_slots_).subspan(i, 1)});
  const int x_columns = net.channels() + net.value_columns();
  delta_net(backend, {.x = View<const float>(x_.data(), rows, x_columns),
                      .gates = View<const float>(gates_.data(), rows, net.gate_columns()),
                      .taps = taps_,
                      .a_log = a_log_,
                      .dt_bias = dt_bias_,
                      .norm = norm_,
                      .norm_eps = 1e-6f,
                      .layer = {shape_, states_.data(), blocks_.data()},
                      .sequences = sequences_,
                      .out = {out_.data(), kType, rows, net.value_columns(), net.value_columns()}});
}

// A prompt of two blocks and two tokens, whose last rows are as those of decode.
double DeltaNetBench::check() {
  if (ref_seconds_ != 0) return ref_seconds_;
  const int slots[] = {0};
  run(measured_, slots, 0, kCheckedRows);
  const auto computed = results(kCheckedRows);
  const std::vector<std::byte> got(computed.begin(), computed.end());
  const double seconds = seconds_of([&] { run(ref_, slots, 0, kCheckedRows); });
  const bool same = std::ranges::equal(got, results(kCheckedRows));
  return ref_seconds_ = same ? seconds / (kCheckedRows * work_.operations_of_row) : -1;
}

KernelCase DeltaNetBench::decode_case(int sequences) {
  KernelCase c;
  c.name = fmt::format("delta_net decode sequences={} heads={}/{} dims={} bf16", sequences,
                       kBenchNet.num_key_heads, kBenchNet.num_value_heads, kBenchNet.key_dim);
  c.calls = sequences == 1 ? 24 : 8;
  c.check = [this] { return check(); };
  c.run = [=, this](int call) -> CallWork {
    std::vector<int> slots(static_cast<size_t>(sequences));
    for (int i = 0; i < sequences; ++i)
      slots[static_cast<size_t>(i)] = (call * sequences + i) % kSlots;
    run(measured_, slots, kPosition, 1);
    return {sequences * work_.block_bytes, sequences * work_.operations_of_row, PeakUnit::fma};
  };
  return c;
}

KernelCase DeltaNetBench::prefill_case(int rows) {
  KernelCase c;
  c.name = fmt::format("delta_net prefill rows={} heads={}/{} dims={} bf16", rows,
                       kBenchNet.num_key_heads, kBenchNet.num_value_heads, kBenchNet.key_dim);
  c.calls = 2;
  c.check = [this] { return check(); };
  c.run = [=, this](int call) -> CallWork {
    const int slots[] = {call % kSlots};
    run(measured_, slots, 0, rows);
    return {work_.block_bytes + rows * work_.state_bytes_of_row, rows * work_.operations_of_row,
            PeakUnit::fma};
  };
  return c;
}

}  // namespace

Result<std::vector<KernelCase>> delta_net_cases(Backend& measured, Backend& ref) {
  HOCKET_TRY(const std::shared_ptr<DeltaNetBench> bench, DeltaNetBench::create(measured, ref));
  std::vector<KernelCase> cases;
  for (const int sequences : {1, 4, 16}) cases.push_back(bench->decode_case(sequences));
  for (const int rows : {64, kPromptRows}) cases.push_back(bench->prefill_case(rows));
  for (KernelCase& c : cases)  // the memory lives as long as the cases
    c.run = [bench, run = std::move(c.run)](int call) { return run(call); };
  return cases;
}

}  // namespace hocket
