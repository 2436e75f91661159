// hocket plan: forecasts memory and speed of a model, here or on a described machine.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/loaded_model.h"
#include "apps/plan_fit.h"
#include "apps/plan_numbers.h"
#include "apps/plan_overlap.h"
#include "apps/plan_split.h"
#include "apps/plan_weights.h"
#include "base/show_bytes.h"
#include "engine/forecast/forecast.h"
#include "engine/forecast/limits.h"
#include "engine/plan/folder_limit.h"
#include "engine/plan/latent_form.h"
#include "engine/rank_setup.h"
#include "engine/runner/weight_changes.h"
#include "engine/runner/worker_choice.h"
#include "engine/tier/cache_store_setup.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

struct PlanFlags {
  ServerSettings settings;
  double memory_gb = 0, read_gbs = 0, peak_gflops = 0, peak_gops = 0;  // 0: that of this machine
  int nnodes = 0, disaggregation_hosts = 0;                            // 0: not given
  bool overlap = false, json = false;
  int num_hosts() const { return std::max(1, nnodes); }
};

struct CapacityPlan {
  ForecastInput input;
  Forecast forecast;
  std::optional<Advice> advice;
  FittingPlans fitting;  // only if the model does not fit
  std::string machine;
  std::string_view peak_name;
  std::optional<std::vector<OverlapPoint>> overlap;  // set with --overlap
  std::optional<std::vector<SplitPoint>> split;      // set with --disaggregation-hosts
  int disaggregation_hosts = 0;
  std::vector<SettingChange> file_changes;
  std::string store;  // found at --kv-cache-store, or its fault; empty: there is none
};

void print_memory(const CapacityPlan& plan) {
  const Forecast& f = plan.forecast;
  const MemoryPlan& memory = f.memory;
  const int page_tokens = plan.input.settings.memory.page_size;
  fmt::print("\nmemory\n");
  print_line("weights", show_bytes(memory.weight_bytes));
  if (const int n = f.choice.model.num_mtp_loaded; n > 0)
    print_line("  for drafts", show_bytes(f.cost.mtp().bytes),
               fmt::format("of these; in the KV cache {} a token, and {} spare pages",
                           show_bytes(n * f.choice.module_page_bytes(page_tokens) / page_tokens),
                           memory.num_spare_pages));
  print_line("work buffers", show_bytes(memory.work_bytes),
             fmt::format("{} rows a step", memory.work.max_rows));
  if (memory.draft_bytes > 0)
    print_line("  for drafts", show_bytes(memory.draft_bytes), "of these: grammars and look-up");
  if (memory.tier_bytes > 0)
    print_line("  for prefixes", show_bytes(memory.tier_bytes), "of these: from and to stores");
  const int64_t tokens =
      f.fits() ? int64_t{memory.num_pages} * page_tokens : int64_t{memory.context_length};
  print_line("KV cache", show_bytes(memory.kv_bytes),
             fmt::format("{} tokens of {}, {}{}", tokens, show_bytes(f.cost.kv_bytes_per_token()),
                         dtype_name(f.choice.kv_dtype), f.fits() ? "" : ": one whole request"));
  if (memory.num_window_pages > 0)
    print_line("  window layers", show_bytes(memory.window_bytes),
               fmt::format("of these, for {} tokens: {} are seen by each running request",
                           int64_t{memory.num_window_pages} * page_tokens,
                           f.choice.model.window().max_keys()));
  if (memory.num_states > 0)
    print_line("states", show_bytes(memory.state_bytes),
               fmt::format("{} slots, two for each of {} running requests, the others for prefixes",
                           memory.num_states, memory.num_blocks));
  if (memory.index_bytes > 0)
    print_line("prefix indexes", show_bytes(memory.index_bytes),
               memory.max_stored_files > 0
                   ? fmt::format("at most: the radix tree {}, and the list of up to {} files",
                                 show_bytes(memory.tree_bytes), memory.max_stored_files)
                   : fmt::format("at most: the radix tree {}", show_bytes(memory.tree_bytes)));
  print_line("total", show_bytes(f.total_bytes()));
  print_line("budget", show_bytes(memory.budget_bytes),
             fmt::format("of {} available", show_bytes(plan.input.available_bytes)));
  if (!f.fits()) return;
  print_changes(memory.changes);
  if (f.choice.model.mla.kv_rank > 0)
    print_line("prefix cache",
               caches_whole_answers(f.choice.model, f.choice.prompt_form) ? "all"
               : f.choice.answer_begins.empty()                           ? "prompts"
                                                                          : "prompts, chat answers",
               fmt::format("--mla-form absorbed: all; prompts of {} tokens cost {:.2f} x",
                           kComparedPromptLen, absorbed_cost_ratio(f.cost)));
  const int asked = std::max(1, plan.input.settings.memory.max_running_requests);
  const int wanted = std::min(asked, std::max(1, memory.max_running_requests));
  print_line("largest context", fmt::format("{}", f.largest_context),
             fmt::format("tokens, of {} request{} at once", wanted, wanted == 1 ? "" : "s"));
  print_line("largest batch", fmt::format("{}", f.largest_batch),
             fmt::format("request{} of {} tokens", f.largest_batch == 1 ? "" : "s",
                         memory.context_length));
}

void print_speed(const CapacityPlan& plan) {
  const Forecast& f = plan.forecast;
  fmt::print("\nspeed               tokens/s\n");
  print_line("prefill", rate(f.prefill_tokens_per_s),
             fmt::format("a prompt of {} tokens", f.prefill_len));
  for (const DecodeSpeed& speed : f.decode) {
    const PassShape pass = f.cost.decode(speed.batch, f.kv_len);
    print_line(fmt::format("decode, batch {}", speed.batch), rate(speed.tokens_per_s),
               fmt::format("{} a step: {} experts, {} tokens each", show_bytes(f.cost.bytes(pass)),
                           std::lround(pass.experts_hit), f.kv_len));
  }
}

void print_link(const CapacityPlan& plan) {
  const StageLink& link = plan.input.link;
  if (plan.forecast.num_ranks == 1 || link.gbit_per_s == 0) return;
  const bool is_guessed = plan.input.settings.parallel.ep_link_gbit == 0;
  print_line("link", fmt::format("{:g} Gbit/s", link.gbit_per_s),
             fmt::format("{:g} us, {:g} core-seconds a GB{}", link.latency_us, link.core_s_per_gb,
                         is_guessed ? "; another: --ep-link-gbit" : ""));
}

std::string advice_text(const Advice& advice) {
  return fmt::format("{}: decode {} -> {} tokens/s at batch {}, {:.2f} x", advice.flags,
                     rate(advice.tokens_per_s_before), rate(advice.tokens_per_s), advice.batch,
                     advice.tokens_per_s / advice.tokens_per_s_before);
}

void print_table(const CapacityPlan& plan) {
  const Forecast& f = plan.forecast;
  const ModelConfig& model = f.choice.model;
  fmt::print("model    {} | {} layers, hidden {}", model.architecture, model.num_layers,
             model.hidden_size);
  if (model.moe.num_experts > 0)
    fmt::print(" | {} experts, top {}", model.moe.num_experts, model.moe.top_k);
  fmt::print("\n         {} parameters, {} active a token\n", parameters(f.cost.parameters()),
             parameters(f.cost.active_parameters()));
  if (const int loaded = model.num_mtp_loaded, modules = loaded > 0 ? loaded : model.num_mtp_layers;
      f.cost.mtp().bytes > 0)
    fmt::print("         and {} {} multi-token-prediction layer{}, {} parameters, {}\n",
               loaded > 0 ? "besides" : "not loaded:", modules, modules == 1 ? "" : "s",
               parameters(f.cost.mtp().parameters), show_bytes(f.cost.mtp().bytes));
  const MachineSpeed& speed = plan.input.speed;
  fmt::print("machine  {}\n         read {:.1f} GB/s | {} {:.0f} GFLOP/s | int8 {:.0f} Gop/s\n",
             plan.machine, speed.read_bytes_per_s / 1e9, plan.peak_name,
             speed.operations_per_s / 1e9, speed.integer_operations_per_s / 1e9);
  print_weights(f.cost);
  print_changes(plan.file_changes);
  print_memory(plan);
  print_speed(plan);
  print_link(plan);
  if (!plan.store.empty()) fmt::print("\nstore    {}\n", plan.store);
  if (f.fits())
    fmt::print("\nadvice   {}\n", plan.advice ? advice_text(*plan.advice)
                                              : "no single flag would raise decoding by 5 %");
  if (plan.overlap) print_overlap(*plan.overlap, f.num_ranks);
  if (plan.split) print_split(*plan.split, plan.disaggregation_hosts);
}

Json advice_json(const std::optional<Advice>& advice) {
  if (!advice) return {};
  return {{"flag", advice->flags},
          {"fits", advice->fits},
          {"needed_bytes", advice->needed_bytes},
          {"context_length", advice->context_length},
          {"batch", advice->batch},
          {"decode_tokens_per_s", advice->tokens_per_s},
          {"decode_tokens_per_s_before", advice->tokens_per_s_before}};
}

void print_json(const CapacityPlan& plan) {
  const Forecast& f = plan.forecast;
  const MemoryPlan& memory = f.memory;
  Json decode;
  for (const DecodeSpeed& speed : f.decode)
    decode[std::to_string(speed.batch)] = speed.tokens_per_s;
  Json out = {{"architecture", f.choice.model.architecture},
              {"parameters", f.cost.parameters()},
              {"active_parameters", f.cost.active_parameters()},
              {"weight_bytes", memory.weight_bytes},
              {"kv_bytes_per_token", f.cost.kv_bytes_per_token()},
              {"kv_bytes", memory.kv_bytes},
              {"num_window_pages", memory.num_window_pages},
              {"window_bytes", memory.window_bytes},
              {"num_states", memory.num_states},
              {"state_bytes", memory.state_bytes},
              {"work_bytes", memory.work_bytes},
              {"draft_bytes", memory.draft_bytes},
              {"tier_bytes", memory.tier_bytes},
              {"index_bytes", memory.index_bytes},
              {"tree_bytes", memory.tree_bytes},
              {"max_stored_files", memory.max_stored_files},
              {"total_bytes", f.total_bytes()},
              {"budget_bytes", memory.budget_bytes},
              {"memory_bytes", plan.input.total_bytes},
              {"available_bytes", plan.input.available_bytes},
              {"parts", parts_json(f.cost)},
              {"mtp_bytes", f.cost.mtp().bytes},
              {"mtp_parameters", f.cost.mtp().parameters},
              {"fits", f.fits()},
              {"context_length", memory.context_length},
              {"max_running_requests", memory.max_running_requests},
              {"max_total_tokens", f.fitting_tokens},
              {"largest_context", f.largest_context},
              {"largest_batch", f.largest_batch},
              {"read_bytes_per_s", plan.input.speed.read_bytes_per_s},
              {"operations_per_s", plan.input.speed.operations_per_s},
              {"integer_operations_per_s", plan.input.speed.integer_operations_per_s},
              {"prefill_tokens", f.prefill_len},
              {"prefill_tokens_per_s", f.prefill_tokens_per_s},
              {"decode_context", f.kv_len},
              {"decode_tokens_per_s", decode},
              {"ranks", f.num_ranks},
              {"link_gbit", plan.input.link.gbit_per_s},
              {"advice", advice_json(plan.advice)}};
  add_fitting_json(plan.fitting, out);
  if (plan.overlap) out["overlap"] = overlap_json(*plan.overlap);
  if (plan.split) out["disaggregation"] = split_json(*plan.split);
  if (!plan.store.empty()) out["store"] = plan.store;
  fmt::print("{}\n", out.dump());
}

// Fills input.speed from the flags and measures the speeds that no flag gives. Returns the name
// of the peak: "peak" (from a flag), or the instruction's.
Result<std::string_view> measure_speed(const PlanFlags& flags, const WorkerPool::Options& options,
                                       ForecastInput& input) {
  MachineSpeed& speed = input.speed;
  speed = {flags.read_gbs * 1e9, flags.peak_gflops * 1e9,
           (flags.peak_gops > 0 ? flags.peak_gops : 2 * flags.peak_gflops) * 1e9};
  HOCKET_TRY(const Isa isa, choose_isa());
  const Isa level = flags.settings.model.dtype == "float32" ? std::min(isa, Isa::avx512) : isa;
  const std::string_view name = flags.peak_gflops > 0 ? "peak" : bf16_peak_name(level);
  if (speed.read_bytes_per_s > 0 && speed.operations_per_s > 0 &&
      speed.integer_operations_per_s > 0)
    return name;
  WorkerPool workers(options);
  workers.adopt_caller();
  if (speed.operations_per_s == 0) speed.operations_per_s = measured_bf16_peak(level, workers);
  if (speed.integer_operations_per_s == 0)
    speed.integer_operations_per_s = measured_integer_peak(isa, workers);
  if (speed.read_bytes_per_s == 0) speed.read_bytes_per_s = measured_read_bandwidth(workers);
  if (speed.read_bytes_per_s == 0)
    return fail(error(ErrorCode::out_of_memory, "no memory to measure its read bandwidth with")
                    .with_fix("--read-gbs NUMBER"));
  return name;
}

// Divides memory, workers and speeds of this machine by the number of ranks that share it.
void share(int ranks, ForecastInput& input) {
  input.total_bytes /= ranks;
  input.available_bytes /= ranks;
  input.num_workers = std::max(1, input.num_workers / ranks);
  input.speed.read_bytes_per_s /= ranks;
  input.speed.operations_per_s /= ranks;
  input.speed.integer_operations_per_s /= ranks;
}

// Returns the link between ranks: that of the flags, and what they do not say as it is in one host,
// where ranks share memory, or as it is guessed between hosts.
StageLink link_of(const PlanFlags& flags) {
  const ParallelSettings& parallel = flags.settings.parallel;
  StageLink link = flags.num_hosts() > 1 ? kGuessedLink : StageLink{};
  if (parallel.ep_link_gbit > 0) link.gbit_per_s = parallel.ep_link_gbit;
  if (parallel.ep_link_latency_us > 0) link.latency_us = parallel.ep_link_latency_us;
  return link;
}

Result<CapacityPlan> make_plan(const PlanFlags& flags) {
  const Machine machine = inspect_machine();
  const int num_ranks = flags.settings.parallel.ep_size, a_host = num_ranks / flags.num_hosts();
  ComputeSettings compute = flags.settings.compute;
  compute.num_threads *= a_host;  // --num-threads is the number of each rank
  HOCKET_TRY(const WorkerPool::Options workers, choose_workers(compute, machine));
  ForecastInput input{.settings = flags.settings,
                      .total_bytes = machine.memory_bytes,
                      .available_bytes = machine.memory_available_bytes,
                      .num_workers = workers.num_workers,
                      .link = link_of(flags)};
  HOCKET_TRY(input.isa, choose_isa());
  std::string name = describe(machine);
  if (flags.memory_gb > 0) {
    input.total_bytes = input.available_bytes = static_cast<int64_t>(flags.memory_gb * 1e9);
    name = fmt::format("{:.1f} GB, all free (--memory-gb)", flags.memory_gb);
  }
  HOCKET_TRY(const std::string_view peak, measure_speed(flags, workers, input));
  if (num_ranks > 1)
    name += a_host == 1 ? fmt::format("\n         one of {} hosts, each with a rank", num_ranks)
                        : fmt::format("\n         {} ranks share it; figures are of one", a_host);
  share(a_host, input);
  if (flags.memory_gb <= 0)
    input.available_bytes = memory_beside_folder(input.available_bytes, flags.settings);
  HOCKET_TRY(Forecast found, forecast(input));
  std::optional<Advice> advice = advise(input, found);
  CapacityPlan plan{std::move(input),
                    std::move(found),
                    std::move(advice),
                    {},
                    std::move(name),
                    peak,
                    {},
                    {},
                    0,
                    {},
                    {}};
  HOCKET_TRY(plan.file_changes, file_changes(plan.forecast.choice, flags.settings.model));
  if (!plan.forecast.fits())
    plan.fitting = find_fitting_plans(plan.input, plan.forecast, plan.advice, a_host);
  if (flags.overlap) plan.overlap = plan_overlap(plan.input, plan.forecast);
  plan.disaggregation_hosts = flags.disaggregation_hosts;
  if (flags.disaggregation_hosts > 0 && plan.forecast.fits())
    plan.split = plan_split(plan.input, plan.forecast, flags.disaggregation_hosts);
  if (!flags.settings.memory.kv_cache_store.empty()) {
    const Result<std::string> store = probe_store(flags.settings.memory);
    plan.store = store ? *store : fmt::format("{}; {}", store.error().message, store.error().fix);
  }
  return plan;
}

// Checks the numbers of ranks and hosts. --overlap without --ep-size means one rank on each of two
// hosts like this one (or of --nnodes hosts, if that is more).
Result<void> check_ranks(PlanFlags& flags) {
  ParallelSettings& parallel = flags.settings.parallel;
  if (flags.overlap && parallel.ep_size == 1)
    parallel.ep_size = flags.nnodes = std::max(2, flags.nnodes);
  if (parallel.ep_size % flags.num_hosts() != 0)
    return fail(error(ErrorCode::bad_value, "--nnodes is {}, must divide the {} ranks of --ep-size",
                      flags.nnodes, parallel.ep_size)
                    .with_param("nnodes")
                    .with_fix("--nnodes 2 --ep-size 4"));
  HOCKET_TRY_VOID(check_split_hosts(flags.disaggregation_hosts, parallel));
  return check_parallel(flags.settings);
}

Result<int> plan_all(const Arguments& arguments) {
  PlanFlags flags;
  std::vector<FlagGroup> groups = model_flags(flags.settings);
  groups.push_back(speculation_flags(flags.settings));
  groups.insert(
      groups.begin(),
      {"Plan",
       {{"memory-gb", &flags.memory_gb, "memory of another machine, GB; 0: this one's", ""},
        {"read-gbs", &flags.read_gbs, "memory bandwidth, GB/s; 0: measured here", ""},
        {"peak-gflops", &flags.peak_gflops, "speed of bf16 products, GFLOP/s; 0: measured here",
         ""},
        {"peak-gops", &flags.peak_gops,
         "speed of int8 products, Gop/s; 0: twice --peak-gflops, or measured here", ""},
        {"nnodes", &flags.nnodes, "hosts like this one that the ranks are on; 0: one", ""},
        {"overlap", &flags.overlap,
         "also the best overlap plan for several sizes of steps and speeds of links, on two hosts "
         "or as --ep-size, --nnodes and --ep-link-gbit say",
         ""},
        {"disaggregation-hosts", &flags.disaggregation_hosts,
         "number of hosts like this one: also whether separate hosts for prefill pay, by prompt "
         "length and time between tokens; 0: no",
         ""},
        {"json", &flags.json, "prints one JSON object", ""}}});
  HOCKET_TRY(
      const bool go,
      parse_flags(
          {.command = "plan",
           .about = "forecast memory use and speed from config.json, without loading the model",
           .groups = std::move(groups)},
          arguments));
  if (!go) return 0;
  HOCKET_TRY_VOID(choose_model(flags.settings));
  HOCKET_TRY_VOID(check_ranks(flags));
  HOCKET_TRY_VOID(check_store(flags.settings.memory));
  HOCKET_TRY(const CapacityPlan plan, make_plan(flags));
  flags.json ? print_json(plan) : print_table(plan);
  if (plan.forecast.fits()) return 0;
  Error refusal = *plan.forecast.refusal;
  if (plan.advice) refusal.fix = fitting_text(*plan.advice, plan.fitting);
  return fail(std::move(refusal));
}

}  // namespace

int plan(const Arguments& arguments) {
  const Result<int> done = plan_all(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
