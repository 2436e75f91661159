#include "apps/flags.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "apps/flag_docs.h"
#include "apps/flag_hints.h"
#include "apps/yaml_file.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "base/thread.h"
#include "core/setting_ranges.h"

namespace hocket {
namespace {

// Returns the nearest name as "--port?", or `otherwise` if no name is near.
std::string suggestion(std::string_view name, const std::vector<std::string>& names,
                       const std::string& otherwise) {
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  const auto near = nearest_name(name, candidates);
  return near ? fmt::format("{}?", *near) : otherwise;
}

void add_flag(CLI::App& app, const FlagGroup& group, const Flag& flag) {
  const std::string names =
      (flag.short_name.empty() ? "" : "-" + flag.short_name + ",") + "--" + flag.name;
  std::visit(
      [&](auto* target) {
        using T = std::remove_cvref_t<decltype(*target)>;
        CLI::Option* option = nullptr;
        if constexpr (std::is_same_v<T, bool>) {
          option = app.add_flag(names, *target, flag.help);
        } else {
          option = app.add_option(names, *target, flag.help)->capture_default_str();
        }
        option->envname(variable_name(flag.name))->group(group.heading);
      },
      flag.target);
}

Error unknown(const CLI::App& app, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  const Error base =
      error(ErrorCode::unknown_flag, "{} is not a flag of hocket {}", name, app.get_name());
  if (const auto ours = flag_hint(name)) return Error(base).with_fix(std::string(*ours));
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  return Error(base).with_fix(
      suggestion(name, names, fmt::format("hocket {} --help lists them", app.get_name())));
}

Result<void> apply_file(const std::string& path, const std::vector<FlagGroup>& groups) {
  HOCKET_TRY(const auto values, read_yaml_values(path));
  for (const auto& [key, value] : values) {
    const Flag* flag = nullptr;
    std::vector<std::string> names;
    for (const FlagGroup& group : groups)
      for (const Flag& candidate : group.flags) {
        names.push_back(candidate.name);
        if (candidate.name == key) flag = &candidate;
      }
    if (flag == nullptr)
      return fail(error(ErrorCode::unknown_flag, "{}: {} is not a setting", path, key)
                      .with_fix(suggestion(key, names, "hocket serve --help lists them")));
    bool ok = true;
    std::visit(
        [&, &text = value](auto* target) {
          using T = std::remove_cvref_t<decltype(*target)>;
          T parsed{};
          if constexpr (std::is_same_v<T, std::vector<std::string>>)
            parsed = {text};
          else if constexpr (std::is_same_v<T, std::string>)
            parsed = text;
          else
            ok = CLI::detail::lexical_cast(text, parsed);
          if (ok) *target = std::move(parsed);
        },
        flag->target);
    if (!ok) return fail(ErrorCode::bad_value, "{}: {} cannot be {}", path, key, value);
  }
  return {};
}

// Checks all values, whether they come from the command line, a variable or the file.
Result<void> check_numbers(const std::vector<FlagGroup>& groups) {
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags)
      HOCKET_TRY_VOID(std::visit(
          [&](const auto* target) { return check_setting(flag.name, *target); }, flag.target));
  return {};
}

std::string config_path(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == "--config" && i + 1 < arguments.size()) return arguments[i + 1];
    if (arguments[i].starts_with("--config=")) return arguments[i].substr(9);
  }
  const char* variable = std::getenv("HOCKET_CONFIG");
  return variable == nullptr ? "" : variable;
}

FlagGroup rank_flags(ServerSettings& s) {
  return {
      "Ranks",
      {{"ep-size", &s.parallel.ep_size,
        "number of ranks of the service: experts are distributed over them, and each rank computes "
        "requests of its own. Without flags for hosts or processes, ranks are threads of this "
        "process",
        ""},
       {"dp-routing", &s.parallel.dp_routing,
        "which rank takes a request: shortest, cache-aware or round-robin", ""},
       {"dispatch-dtype", &s.parallel.dispatch_dtype,
        "format of rows sent to experts: auto (unchanged), bfloat16, or int8 (half the bytes, "
        "other results)",
        "", true},
       {"combine-dtype", &s.parallel.combine_dtype,
        "format of the sums of experts' outputs sent back: auto (unchanged), bfloat16, or int8 "
        "(half the bytes, other results, more computing)",
        "", true},
       {"init-expert-location", &s.parallel.init_expert_location,
        "initial placement of experts: trivial (in order), or a file with a placement or with "
        "recorded counts of rows",
        "", true},
       {"ep-num-redundant-experts", &s.parallel.ep_num_redundant_experts,
        "replicas of experts in each layer, on all ranks together; or auto: as memory allows", "",
        true},
       {"eplb-algorithm", &s.parallel.eplb_algorithm,
        "algorithm that places experts by recorded counts: auto, or those of EPLB: global or "
        "hierarchical",
        "", true},
       {"enable-eplb", &s.parallel.enable_eplb,
        "move experts between ranks while serving, when that saves more time than it costs", "",
        true},
       {"eplb-rebalance-num-iterations", &s.parallel.eplb_rebalance_num_iterations,
        "least number of steps between two checks of the experts' load", "", true},
       {"expert-distribution-recorder-mode", &s.parallel.expert_distribution_recorder_mode,
        "record which experts rows choose from the start on: stat or per_pass", ""},
       {"ep-link-gbit", &s.parallel.ep_link_gbit,
        "simulate a network of this rate between the ranks of one process, Gbit/s; 0: none", ""},
       {"ep-link-latency-us", &s.parallel.ep_link_latency_us,
        "latency of that simulated network, microseconds", ""}}};
}

// Returns the flags of a service whose ranks are processes.
std::vector<Flag> process_flags(ParallelSettings& p) {
  return {
      {"nnodes", &p.nnodes, "hosts that serve as one; 0: one, or as a launcher says", "", true},
      {"node-rank", &p.node_rank,
       "number of this host among them, from 0 on; -1: as a launcher says", ""},
      {"dist-init-addr", &p.dist_init_addr, "HOST:PORT of rank 0, the same on all hosts", "", true},
      {"cluster-store", &p.cluster_store,
       "etcd://HOST:2379[,HOST:2379...][/NAME], or etcds:// with TLS: the ranks elect a "
       "coordinator there, so any rank may be lost",
       "", true},
      {"cluster-store-cacert", &p.cluster_store_cacert,
       "file (PEM) with the CA of the certificates of an etcds:// store; that of the system if "
       "absent",
       ""},
      {"cluster-store-cert", &p.cluster_store_cert,
       "file (PEM) with the certificate by which such a store knows this rank; none if absent", ""},
      {"cluster-store-key", &p.cluster_store_key,
       "PEM file with the private key of --cluster-store-cert", ""},
      {"cluster-listen", &p.cluster_listen,
       "HOST:PORT where this rank listens while it coordinates, with --cluster-store; chosen if "
       "absent",
       ""},
      {"ranks-per-node", &p.ranks_per_node,
       "processes of each host, which the first one starts; 0: one", ""},
      {"cluster-token-file", &p.cluster_token_file,
       "file with a secret of 16 bytes or more, the same on all hosts; it proves that a rank "
       "belongs here",
       ""},
      {"cluster-tls", &p.cluster_tls,
       "TLS 1.3 between ranks, with a key from the token: on, off, or auto: across hosts, if there "
       "is a token",
       "", true},
      {"insecure-cluster", &p.insecure_cluster,
       "no token across hosts: anyone who reaches the port may join", ""},
      {"rank-wait", &p.rank_wait_s,
       "seconds that a rank waits for an unreachable rank 0 or coordinator before it exits with "
       "status 5; with --tolerate-ranks also the time after which the ranks that are ready start "
       "without the others",
       ""},
      {"lost-rank-wait", &p.lost_rank_wait_s,
       "seconds that running requests wait when a rank is lost, and continue when it is back; 0: "
       "they "
       "end",
       ""},
      {"tolerate-ranks", &p.tolerate_ranks,
       "number of ranks that may be missing while the others keep serving; takes memory for their "
       "experts; 0: all wait for a lost rank",
       "", true},
      {"ucx-tls", &p.ucx_tls, "as UCX_TLS: tcp, rc, shm ...; chosen if absent", ""},
      {"ucx-net-devices", &p.ucx_net_devices,
       "as UCX_NET_DEVICES: eth0, mlx5_0:1 ...; all if absent", ""},
      {"enable-prefill-delayer", &p.enable_prefill_delayer,
       "prefill starts on all ranks together, so that no rank's decode waits for another rank's "
       "prefill",
       "", true},
      {"prefill-delayer-max-passes", &p.prefill_delayer_max_passes,
       "largest number of passes for which --enable-prefill-delayer delays a prompt", "", true}};
}

FlagGroup scheduler_flags(ServerSettings& s) {
  return {
      "Scheduler",
      {{"schedule-policy", &s.scheduler.schedule_policy,
        "fcfs, lpm, dfs-weight, hrrn, shortest-prefill-first, lof, random, routing-key or fair",
        ""},
       {"chunked-prefill-size", &s.scheduler.chunked_prefill_size,
        "tokens of a prefill chunk; 0: chosen for the number of cores; -1: prompts are not chunked",
        "", true},
       {"max-prefill-tokens", &s.scheduler.max_prefill_tokens, "prompt tokens of one step", "",
        true},
       {"max-chunked-requests", &s.scheduler.max_chunked_requests,
        "long prompts that share the steps, computed in part at the same time", "", true},
       {"prefill-policy", &s.scheduler.prefill_policy,
        "prefill-first: decode waits while prompts are computed; mixed: prefill and decode share "
        "steps; latency: mixed, with chunks sized for --itl-slo-ms; auto: latency with half of the "
        "time for prompts, or prefill-first with several ranks or whole prompts",
        "", true},
       {"enable-mixed-chunk", &s.scheduler.enable_mixed_chunk, "--prefill-policy mixed", "", true},
       {"itl-slo-ms", &s.scheduler.itl_slo_ms,
        "goal for the time between two tokens of a request, ms; of --prefill-policy latency", ""},
       {"overlap-schedule", &s.scheduler.overlap_schedule,
        "results are handled while the next step runs: on, off, or auto (measured)", "", true},
       {"disable-overlap-schedule", &s.scheduler.disable_overlap_schedule, "--overlap-schedule off",
        "", true},
       {"max-overtaken", &s.scheduler.max_overtaken,
        "maximum number of later requests that may start before a waiting one", ""},
       {"schedule-conservativeness", &s.scheduler.schedule_conservativeness,
        "factor of the memory reserved for running requests", ""},
       {"schedule-seed", &s.scheduler.schedule_seed, "seed of --schedule-policy random", ""},
       {"prefill-max-requests", &s.scheduler.prefill_max_requests,
        "prompts of one step; 0: no limit", ""},
       {"waiting-timeout", &s.scheduler.waiting_timeout_s,
        "seconds in the queue, beyond: 503; 0: never", ""},
       {"running-timeout", &s.scheduler.running_timeout_s,
        "seconds from first step to last, beyond: 503; 0: never", ""},
       {"in-batch-prefix-check", &s.scheduler.in_batch_prefix_check,
        "a prompt waits for another one that computes the same prefix if at most this many of its "
        "tokens are cached; -1: none waits",
        ""},
       {"in-batch-prefix-common", &s.scheduler.in_batch_prefix_common,
        "least number of common prefix tokens for --in-batch-prefix-check", ""},
       {"enable-priority-scheduling", &s.scheduler.enable_priority_scheduling,
        "requests with a larger priority go first", ""},
       {"schedule-low-priority-values-first", &s.scheduler.schedule_low_priority_values_first,
        "smaller numbers are larger priorities", ""},
       {"priority-scheduling-preemption-threshold", &s.scheduler.priority_preemption_threshold,
        "a running request gives way to one whose priority is larger by more than this", ""},
       {"disable-priority-preemption", &s.scheduler.disable_priority_preemption,
        "running requests never give way", ""},
       {"abort-on-priority-when-disabled", &s.scheduler.abort_on_priority_when_disabled,
        "refuse a priority while priorities are off, instead of ignoring it", ""},
       {"disable-radix-cache", &s.scheduler.disable_radix_cache, "keep no prefixes", ""},
       {"radix-eviction-policy", &s.scheduler.radix_eviction_policy,
        "which prefix is evicted first: lru, lfu, fifo, mru, filo, slru or priority", ""}}};
}

}  // namespace

std::vector<FlagGroup> model_flags(ServerSettings& s) {
  return {
      {"Model",
       {{"model-path", &s.model.model_path,
         "Hugging Face folder or GGUF file; the bundled tiny model if absent", ""},
        {"tokenizer-path", &s.model.tokenizer_path,
         "folder or GGUF file of the tokenizer; the model's if absent", ""},
        {"context-length", &s.model.context_length,
         "largest number of tokens of a prompt and its answer together; 0: the model's own", "",
         true},
        {"dtype", &s.model.dtype, "auto, bfloat16 or float32", "", true},
        {"quantization", &s.model.quantization,
         "none, int8 or int4; weights stored in as few bits or fewer are not changed", "", true},
        {"load-format", &s.model.load_format, "auto, or dummy: seeded random weights", "", true},
        {"dummy-seed", &s.model.dummy_seed, "seed of --load-format dummy", "", true},
        {"weight-cache", &s.model.weight_cache,
         "folder that keeps packed weights, so that the next start maps them; none if absent", ""},
        {"chat-template", &s.model.chat_template, "Jinja file; the model's own if absent", ""},
        {"grammar-backend", &s.model.grammar_backend,
         "grammar compiler for structured output: llguidance, or none: refuse structured output",
         ""}}},
      memory_flags(s),
      scheduler_flags(s),
      {"CPU",
       {{"cpu-bind", &s.compute.cpu_bind, "auto, none, or processors as 0-3,8", ""},
        {"num-threads", &s.compute.num_threads, "compute threads per rank; 0: one per core", ""},
        {"combine-groups", &s.compute.combine_groups,
         "number of groups in which experts' outputs are summed before the groups' sums are; 0: "
         "one group per expert",
         "", true},
        {"mla-form", &s.compute.mla_form,
         "how latent attention (MLA) is computed. auto: absorbed for answers, also as part of a "
         "later prompt, expanded for other tokens; absorbed: absorbed for all tokens; roles: "
         "expanded for prompts, absorbed for answers, which are then not cached; answers:ID,ID..: "
         "as auto, with the ids of tokens that open an answer",
         "", true}}},
      rank_flags(s),
  };
}

std::vector<FlagGroup> settings_flags(ServerSettings& s) {
  std::vector<FlagGroup> groups = model_flags(s);
  groups[0].flags.push_back({"served-model-name", &s.model.served_model_name,
                             "name in answers; the folder's if absent", ""});
  groups[1].flags.push_back(
      {"max-queued-requests", &s.memory.max_queued_requests, "waiting requests; beyond: 429", ""});
  groups[1].flags.push_back(
      {"max-queued-tokens", &s.memory.max_queued_tokens, "prompt tokens waiting; 0: no limit", ""});
  groups[2].flags.push_back({"kv-events", &s.scheduler.kv_events,
                             "stream changes of the prefix cache at /kv_events", ""});
  groups[2].flags.push_back({"decode-log-interval", &s.scheduler.decode_log_interval,
                             "decode steps from one log line to the next", ""});
  std::vector<Flag>& ranks = groups.back().flags;
  ranks.front().help += "; 0: as many as are started";
  std::ranges::move(process_flags(s.parallel), std::back_inserter(ranks));
  groups.push_back(peer_flags(s));
  groups.push_back(speculation_flags(s));
  groups.push_back(overlap_flags(s));
  groups.push_back(http_flags(s));
  groups.push_back(answer_flags(s));
  groups.push_back(observe_flags(s));
  return groups;
}

Result<bool> parse_flags(const CommandLine& line, const std::vector<std::string>& arguments) {
  if (constexpr std::string_view kForm = "--help=";
      arguments.size() == 1 && arguments[0].starts_with(kForm)) {
    HOCKET_TRY(const std::string page, flag_docs(line, arguments[0].substr(kForm.size())));
    fmt::print("{}", page);
    return false;
  }
  CLI::App app(line.about, line.command);
  app.allow_extras();
  std::string config;
  for (const FlagGroup& group : line.groups)
    for (const Flag& flag : group.flags) add_flag(app, group, flag);
  if (line.takes_config) {
    app.add_option("--config", config, "YAML file of settings; flags and HOCKET_* variables win");
    if (const std::string path = config_path(arguments); !path.empty())
      HOCKET_TRY_VOID(apply_file(path, line.groups));
  }
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return false;
  } catch (const CLI::Error& e) {
    return fail(
        error(ErrorCode::bad_value, "{}", e.what()).with_fix("hocket " + line.command + " --help"));
  }
  if (const auto extras = app.remaining(); !extras.empty())
    return std::unexpected(unknown(app, extras.front()));
  HOCKET_TRY_VOID(check_numbers(line.groups));
  return true;
}

void warn_of_variables(const std::vector<FlagGroup>& groups) {
  std::vector<std::string> known = {"HOCKET_CONFIG", "HOCKET_ISA", "HOCKET_STACK_PERCENT"};
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags) known.push_back(variable_name(flag.name));
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string name(text.substr(0, text.find('=')));
    if (const auto ours = flag_hint(name)) log::warning("{} does nothing: {}", name, *ours);
    if (!name.starts_with("HOCKET_") || std::ranges::count(known, name) > 0) continue;
    if (const std::string meant = suggestion(name, known, ""); !meant.empty())
      log::warning("{} is no setting: {}", name, meant);
  }
  if (const Result<int> percent = choose_stack_percent(); !percent)
    log::warning("{}; threads have their whole stacks", percent.error().message);
  else if (*percent != 100)
    log::info("threads have {} % of their stacks: HOCKET_STACK_PERCENT", *percent);
}

}  // namespace hocket
