#include "bench/one_batch.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "base/clock.h"
#include "bench/dummy_shape.h"
#include "bench/ending.h"
#include "bench/limits.h"
#include "bench/pass_profile.h"
#include "bench/peers_figures.h"
#include "compute/weights/progress_bar.h"
#include "engine/plan/cost.h"
#include "engine/runner.h"
#include "policy/cache/page_allocator.h"

namespace hocket {
namespace {

constexpr int kWarmTokens = 2048;

struct PassLimits {
  MachineSpeed speed;
  std::string_view peak_name;
};

// The time and the work of several passes.
struct PassWork {
  double seconds = 0, bytes = 0;
  Operations operations;
  int64_t experts_hit = 0;  // distinct experts of each layer and pass, summed
  int passes = 0;
  PassProfile profile;
};

// Returns the number of experts in all layers together.
int experts_of(const ModelConfig& model) {
  return model.moe.num_experts * static_cast<int>(std::ranges::count(model.layer_is_moe, true));
}

// Runs passes over sequences that grow by random tokens. Each has pages of its own, except those of
// a prefix that all share.
class PassBench {
 public:
  PassBench(Runner& runner, const ModelCost& cost, const BenchOneBatchOptions& options)
      : runner_(runner), cost_(cost), chunk_(runner.plan().work.max_rows) {
    batch_.reserve(chunk_, runner.plan().max_running_requests);
    pages_per_sequence_ =
        pages_for(options.context_len + options.output_len, runner.info().page_tokens);
    shared_pages_ =
        std::min(options.shared_prefix, options.context_len) / runner.info().page_tokens;
    experts_all_ = experts_of(runner.info().model);
  }

  // Runs the prompt of one sequence in chunks, with the logits of its last row.
  PassWork prefill(int len) {
    PassWork work;
    start_sequences(1, pages_for(len, runner_.info().page_tokens));
    while (sequences_[0].len < len) {
      const int begin = sequences_[0].len, rows = std::min(chunk_, len - begin);
      batch_.clear();
      batch_.mode = ForwardMode::extend;
      add_rows(sequences_[0], rows, runner_.info().prompt_role);
      if (begin + rows == len) batch_.output_rows.push_back(rows - 1);
      add(work, cost_.prefill(rows, begin));
    }
    return work;
  }

  // Runs prompts of `context` tokens, which are not timed, then `steps` steps of one token each.
  PassWork decode(int batch, int context, int steps) {
    PassWork ignored, work;
    start_sequences(batch, pages_per_sequence_);
    const int shared = shared_pages_ * runner_.info().page_tokens;
    for (Sequence& sequence : sequences_) {
      if (&sequence != sequences_.data()) share_prefix(sequence);
      while (sequence.len < context) {
        batch_.clear();
        batch_.mode = ForwardMode::extend;
        add_rows(sequence, std::min(chunk_, context - sequence.len), runner_.info().prompt_role);
        add(ignored, {});
      }
    }
    for (int step = 0; step < steps; ++step) {
      batch_.clear();
      batch_.mode = ForwardMode::decode;
      for (Sequence& sequence : sequences_) {
        batch_.output_rows.push_back(batch_.num_rows());
        add_rows(sequence, 1, TokenRole::generated);
      }
      PassShape pass = cost_.decode(batch, context + step + 1);
      pass.kv_tokens -= (batch - 1) * shared;
      add(work, pass);
    }
    return work;
  }

 private:
  struct Sequence {
    std::vector<PageId> pages;
    int len = 0;
    StatePlace state;  // models with delta nets: the slot of all its states
  };

  void start_sequences(int count, int num_pages) {
    HOCKET_CHECK(count * num_pages <= runner_.info().num_pages);
    sequences_.assign(count, {});
    for (int i = 0; i < count * num_pages; ++i)
      sequences_[i / num_pages].pages.push_back(PageId{i});
    for (int i = 0; i < count; ++i)
      sequences_[i].state = {.end = num_pages * runner_.info().page_tokens, .slot = i};
  }

  // Gives the sequence the shared pages of the first one; it continues behind them.
  void share_prefix(Sequence& sequence) {
    std::copy_n(sequences_[0].pages.begin(), shared_pages_, sequence.pages.begin());
    sequence.len = shared_pages_ * runner_.info().page_tokens;
  }

  void add_rows(Sequence& sequence, int rows, TokenRole role) {
    const int page_tokens = runner_.info().page_tokens;
    batch_.sequences.push_back({.row_begin = batch_.num_rows(),
                                .num_rows = rows,
                                .first_position = sequence.len,
                                .role = role,
                                .pages = sequence.pages});
    if (runner_.info().num_states > 0)
      batch_.delta.push_back({.row_begin = batch_.num_rows(),
                              .num_rows = rows,
                              .first_position = sequence.len,
                              .block = sequence.state.slot,
                              .opens_at = sequence.len == 0 ? 0 : -1,
                              .places = {&sequence.state, 1}});
    std::uniform_int_distribution<int32_t> token(0, runner_.info().model.vocab_size - 1);
    for (int i = 0; i < rows; ++i, ++sequence.len) {
      const PageId page = sequence.pages[sequence.len / page_tokens];
      const int offset = sequence.len % page_tokens;
      batch_.ids.push_back(TokenId{token(random_)});
      batch_.positions.push_back(sequence.len);
      batch_.slots.push_back({page, offset});
      if (offset == 0) batch_.fresh_pages.push_back(page);
    }
  }

  // Runs one pass over batch_ and adds its time and work to `work`. The work is that of `pass`,
  // with the experts that the rows really hit and the outputs of the batch.
  void add(PassWork& work, PassShape pass) {
    const TimePoint start = RealClock().now();
    probe_.begin();
    runner_.forward(batch_, {}, &probe_);
    const int wanted = static_cast<int>(batch_.output_rows.size());
    const int block = runner_.plan().work.max_logits_rows;
    for (int row = 0; row < wanted; row += block)
      runner_.logits(row, std::min(block, wanted - row));
    work.seconds += to_seconds(RealClock().now() - start);
    const PassProbe::Found found = probe_.end();
    work.experts_hit += found.experts_hit;
    pass.experts_hit = static_cast<double>(found.experts_hit);
    pass.outputs = wanted;
    ++work.passes;
    work.profile.add(found.profile);
    work.profile.add_work(pass, cost_, experts_all_);
    work.bytes += cost_.bytes(pass);
    const Operations operations = cost_.operations(pass);
    work.operations.floats += operations.floats;
    work.operations.fp8 += operations.fp8;
    work.operations.integers += operations.integers;
  }

  Runner& runner_;
  const ModelCost& cost_;
  const int chunk_;
  int pages_per_sequence_ = 0, shared_pages_ = 0, experts_all_ = 0;
  std::mt19937 random_{1};
  ForwardBatch batch_;
  std::vector<Sequence> sequences_;
  PassProbe probe_;
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
  const auto positive = [](const std::vector<int>& list) {
    return std::ranges::all_of(list, [](int n) { return n >= 1; });
  };
  if (!positive(o.input_lens) || !positive(o.batches) || o.context_len < 1 || o.output_len < 1 ||
      o.rounds < 1 || o.shared_prefix < 0)
    return fail(ErrorCode::bad_value,
                "--input-len, --batch, --context-len, --output-len and --rounds are at least 1");
  if (o.input_lens.empty() && o.batches.empty())
    return fail(ErrorCode::bad_value, "there is nothing to measure: no --input-len, no --batch");
  return {};
}

// Sets the sizes of memory to what these cases need, and no more.
void fit_settings(const BenchOneBatchOptions& options, ServerSettings& settings) {
  const int page = settings.memory.page_size;
  const int sequence = pages_for(options.context_len + options.output_len, page) * page;
  int batch_max = 1, len_max = sequence;
  for (const int batch : options.batches) batch_max = std::max(batch_max, batch);
  for (const int len : options.input_lens) len_max = std::max(len_max, pages_for(len, page) * page);
  settings.memory.max_running_requests = batch_max;
  settings.model.context_length = len_max;
  settings.memory.max_total_tokens = std::max(int64_t{len_max}, int64_t{batch_max} * sequence);
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
  const Isa isa = runner.info().dtype == DType::bf16 ? runner.info().isa : Isa::avx512;
  limits.peak_name = bf16_peak_name(isa);
  MachineSpeed& speed = limits.speed;
  speed.read_bytes_per_s =
      std::max(speed.read_bytes_per_s, measured_read_bandwidth(runner.workers()));
  speed.operations_per_s =
      std::max(speed.operations_per_s, measured_bf16_peak(isa, runner.workers()));
  speed.integer_operations_per_s =
      std::max(speed.integer_operations_per_s, measured_integer_peak(runner.workers()));
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
