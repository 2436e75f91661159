#include "bench/one_batch.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/clock.h"
#include "bench/bench_error.h"
#include "bench/dummy_shape.h"
#include "bench/pass_bench.h"
#include "bench/peers_figures.h"
#include "compute/weights/progress_bar.h"
#include "engine/forecast/limits.h"
#include "engine/plan/cost.h"
#include "engine/runner/runner.h"
#include "policy/cache/page_allocator.h"

namespace hocket {
namespace {

constexpr int kWarmTokens = 2048;

struct PassLimits {
  MachineSpeed speed;
  std::string_view peak_name;
};

struct PassCase {
  std::string name;
  nlohmann::ordered_json keys;
  int batch = 0, input_len = 0;  // batch 0: a prefill
  std::vector<PassWork> rounds;
};

std::vector<PassCase> cases_of(const BenchOneBatchOptions& options) {
  std::vector<PassCase> cases;
  for (const int len : options.input_lens)
    cases.push_back(
        {fmt::format("prefill {}", len), {{"case", "prefill"}, {"input_len", len}}, 0, len, {}});
  const int shared = std::min(options.shared_prefix, options.context_len);
  for (const int batch : options.batches)
    cases.push_back({fmt::format("decode b={} at {}{}", batch, options.context_len,
                                 shared > 0 ? fmt::format(", {} shared", shared) : ""),
                     {{"case", "decode"},
                      {"batch", batch},
                      {"context_len", options.context_len},
                      {"shared_prefix", shared}},
                     batch,
                     0,
                     {}});
  return cases;
}

template <class Figure>
Spread spread_over(const std::vector<PassWork>& rounds, Figure&& figure) {
  std::vector<double> values;
  for (const PassWork& work : rounds) values.push_back(figure(work));
  return spread_of(values);
}

void print(const PassCase& c, const BenchOneBatchOptions& options, const PassLimits& limits,
           int experts_all) {
  const int steps = c.batch == 0 ? 1 : options.output_len;
  const int tokens = c.batch == 0 ? c.input_len : c.batch * steps;
  const auto us = spread_over(c.rounds, [&](const PassWork& w) { return w.seconds / steps * 1e6; });
  const auto rate = spread_over(c.rounds, [&](const PassWork& w) { return tokens / w.seconds; });
  const auto read = spread_over(c.rounds, [&](const PassWork& w) {
    return w.bytes / w.seconds / limits.speed.read_bytes_per_s;
  });
  const MachineSpeed& speed = limits.speed;
  const auto peak = spread_over(c.rounds, [&](const PassWork& w) {
    return ((w.operations.floats + w.operations.fp8) / speed.operations_per_s +
            w.operations.integers / speed.integer_operations_per_s) /
           w.seconds;
  });
  // The speed relative to the forecast of `hocket plan` for such passes.
  const auto plan = spread_over(c.rounds, [&](const PassWork& w) {
    return ModelCost::seconds(w.bytes, w.operations, speed) / w.seconds;
  });
  const auto hit = spread_over(
      c.rounds, [&](const PassWork& w) { return static_cast<double>(w.experts_hit) / steps; });
  PassProfile profile;
  int passes = 0;
  for (const PassWork& work : c.rounds) profile.add(work.profile), passes += work.passes;
  if (options.json) {
    nlohmann::ordered_json line = c.keys;
    if (c.batch > 0) line["output_len"] = options.output_len;
    line.update({{"tokens_per_s", rate.median},
                 {"tokens_per_s_min", rate.low},
                 {"tokens_per_s_max", rate.high},
                 {"us_per_step", us.median},
                 {"us_per_step_min", us.low},
                 {"us_per_step_max", us.high},
                 {"read_fraction", read.median},
                 {"peak_fraction", peak.median},
                 {"peak", limits.peak_name},
                 {"plan_fraction", plan.median},
                 {"experts_hit", hit.median}});
    if (options.by_operation) line["operations"] = by_operation_json(profile, passes, speed);
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print(
        "{:<18} | {:>7.1f} tok/s ({:.1f}-{:.1f}) | {:>8.0f} us a step ({:.0f}-{:.0f}) | "
        "{:.3f} of read bandwidth | {:.3f} of {} peak | {:.2f} of plan | {:.0f} of {} experts\n",
        c.name, rate.median, rate.low, rate.high, us.median, us.low, us.high, read.median,
        peak.median, limits.peak_name, plan.median, hit.median, experts_all);
    if (options.by_operation) fmt::print("{}", by_operation(profile, passes, speed));
  }
}

// Returns the bytes of a line of /proc/self/status: "VmRSS:" is memory held at present, "VmHWM:"
// the most so far.
int64_t resident_bytes(std::string_view name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == name) {
      int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  return 0;
}

void print_head(const Runner& runner, const PassLimits& limits, int64_t resident, bool json) {
  const EngineInfo& info = runner.info();
  if (json) {
    const nlohmann::ordered_json line = {
        {"cpu", runner.machine().cpu_name},
        {"isa", isa_name(info.isa)},
        {"threads", info.num_workers},
        {"dtype", dtype_name(info.dtype)},
        {"form", form_of(info)},
        {"weight_bytes", info.weight_bytes},
        {"peak_resident_bytes", resident},
        {"num_experts", info.model.moe.num_experts},
        {"top_k", info.model.moe.top_k},
        {"num_moe_layers", std::ranges::count(info.model.layer_is_moe, true)},
        {"chunk_tokens", runner.plan().work.max_rows},
        {"read_gb_s", limits.speed.read_bytes_per_s / 1e9},
        {"peak_gflop_s", limits.speed.operations_per_s / 1e9},
        {"integer_gop_s", limits.speed.integer_operations_per_s / 1e9},
        {"peak", limits.peak_name}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print("machine {}\n", describe(runner.machine()));
    fmt::print(
        "limits  isa={} threads={} | read {:.1f} GB/s | {} {:.0f} GFLOP/s | "
        "int8 {:.0f} Gop/s\n",
        isa_name(info.isa), info.num_workers, limits.speed.read_bytes_per_s / 1e9, limits.peak_name,
        limits.speed.operations_per_s / 1e9, limits.speed.integer_operations_per_s / 1e9);
    fmt::print("model   {} layers, hidden {}, {} experts, top {} | {:.2f} GB {}\n",
               info.model.num_layers, info.model.hidden_size, info.model.moe.num_experts,
               info.model.moe.top_k, static_cast<double>(info.weight_bytes) / 1e9, form_of(info));
  }
}

Result<void> check(const BenchOneBatchOptions& o) {
  HOCKET_TRY_VOID(check_each("input-len", o.input_lens, {1, 1e9}));
  HOCKET_TRY_VOID(check_each("batch", o.batches, {1, 1e6}));
  HOCKET_TRY_VOID(check_number("context-len", o.context_len, {1, 1e9}));
  HOCKET_TRY_VOID(check_number("output-len", o.output_len, {1, 1e9}));
  HOCKET_TRY_VOID(check_number("rounds", o.rounds, {1, 1e6}));
  HOCKET_TRY_VOID(check_number("shared-prefix", o.shared_prefix, {0, 1e9}));
  if (o.input_lens.empty() && o.batches.empty())
    return fail(error(ErrorCode::bad_value,
                      "there is nothing to measure, because --input-len and --batch are empty")
                    .with_fix("--input-len 512, or --batch 1,16"));
  return {};
}

// Sets the sizes of memory to what these cases need, and no more.
void fit_settings(const BenchOneBatchOptions& options, ServerSettings& settings) {
  const int page = settings.memory.page_size;
  const int sequence = pages_for(options.context_len + options.output_len, page) * page;
  int max_batch = 1, max_len = sequence;
  for (const int batch : options.batches) max_batch = std::max(max_batch, batch);
  for (const int len : options.input_lens) max_len = std::max(max_len, pages_for(len, page) * page);
  settings.memory.max_running_requests = max_batch;
  settings.memory.swa_full_tokens_ratio = 1;  // passes give a page the same number in all layers
  settings.model.context_length = max_len;
  settings.memory.max_total_tokens = std::max(int64_t{max_len}, int64_t{max_batch} * sequence);
}

// Checks what only the loaded model tells.
Result<void> check_states(const BenchOneBatchOptions& options, const Runner& runner) {
  if (runner.info().num_states == 0) return {};
  if (options.shared_prefix > 0)
    return fail(error(ErrorCode::bad_value,
                      "--shared-prefix {}: each sequence of this model needs a state of its own",
                      options.shared_prefix)
                    .with_param("shared-prefix"));
  for (const int batch : options.batches)
    if (batch > runner.plan().num_blocks)
      return fail(error(ErrorCode::bad_value, "--batch {}: the states of {} sequences fit", batch,
                        runner.plan().num_blocks)
                      .with_param("batch"));
  return {};
}

void measure_limits(Runner& runner, PassLimits& limits) {
  // Activations of fp32 are multiplied by FMA on every level.
  const Isa level = runner.info().isa;
  const Isa isa = runner.info().dtype == DType::bf16 ? level : std::min(level, Isa::avx512);
  limits.peak_name = bf16_peak_name(isa);
  MachineSpeed& speed = limits.speed;
  speed.read_bytes_per_s =
      std::max(speed.read_bytes_per_s, measured_read_bandwidth(runner.workers()));
  speed.operations_per_s =
      std::max(speed.operations_per_s, measured_bf16_peak(isa, runner.workers()));
  speed.integer_operations_per_s =
      std::max(speed.integer_operations_per_s, measured_integer_peak(level, runner.workers()));
}

Result<void> run(BenchOneBatchOptions& options) {
  HOCKET_TRY_VOID(check(options));
  ServerSettings& settings = options.settings;
  if (settings.parallel.ep_size != 1)
    return fail(error(ErrorCode::bad_value, "bench one-batch measures one rank, not --ep-size {}",
                      settings.parallel.ep_size)
                    .with_fix("hocket bench serving --ep-size N")
                    .with_param("ep-size"));
  std::optional<DummyShape> shape;
  if (settings.model.model_path.empty()) {
    HOCKET_TRY(shape, DummyShape::create(options.shape));
    settings.model.model_path = shape->folder().string();
    settings.model.load_format = "dummy";
  }
  fit_settings(options, settings);
  ProgressBar bar("weights");
  HOCKET_TRY(const auto runner,
             Runner::create({.settings = settings,
                             .progress = [&](const LoadProgress& p) { bar.update(p); },
                             .tokenizer_eos = std::nullopt}));
  HOCKET_TRY_VOID(check_states(options, *runner));
  runner->workers().adopt_caller();
  HOCKET_TRY(const ModelChoice choice, choose_model_form(settings));
  HOCKET_TRY(const ModelCost cost, ModelCost::measure(choice));
  PassBench bench(*runner, cost, options);
  std::vector<PassCase> cases = cases_of(options);
  PassLimits limits;
  // Read between passes, since measuring the limits takes memory of its own.
  int64_t resident = resident_bytes("VmHWM:");
  // Cases and limits take turns, so that other load of this machine slows all alike. Round 0 warms
  // up, with short prompts, and is not counted.
  for (int round = 0; round <= options.rounds; ++round) {
    measure_limits(*runner, limits);
    for (PassCase& c : cases) {
      const int most = round == 0 ? kWarmTokens : std::numeric_limits<int>::max();
      const PassWork work =
          c.batch == 0
              ? bench.prefill(std::min(c.input_len, most))
              : bench.decode(c.batch, std::min(options.context_len, most), options.output_len);
      if (round > 0) c.rounds.push_back(work);
      resident = std::max(resident, resident_bytes("VmRSS:"));
    }
  }
  print_head(*runner, limits, resident, options.json);
  for (const PassCase& c : cases) print(c, options, limits, experts_of(runner->info().model));
  return {};
}

}  // namespace

int bench_one_batch(BenchOneBatchOptions options) {
  const Result<void> done = run(options);
  return done ? 0 : end_with(done.error());
}

}  // namespace hocket
