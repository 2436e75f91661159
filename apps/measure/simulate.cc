// hocket simulate: runs a trace through the real scheduler in virtual time, once a policy.
#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <span>
#include <utility>

#include "apps/commands.h"
#include "apps/flags.h"
#include "base/log.h"
#include "core/setting_ranges.h"
#include "engine/plan/scheduler_settings.h"
#include "policy/simulation/virtual_run.h"

namespace hocket {
namespace {

constexpr int kMaxVirtualHosts = 64;
constexpr double kMinGain = 1.1;       // from which a second kind of host is worth it
constexpr const char* kAsLogged = "";  // keeps the log's prefill policy: no flag named another

struct SimulateFlags {
  std::string trace, step_model, save_step_model, csv;
  SyntheticTraffic synthetic;
  int concurrency = 0;  // clients; 0: the number in the trace
  SchedulerOptions scheduler;
  int64_t max_total_tokens = 524288;
  bool no_prefix_cache = false;
  std::string prefill_policy = SchedulerSettings().prefill_policy;
  bool mixed_chunk = false;
  double itl_slo_ms = 100;
  std::vector<std::string> policies;
  bool compare = false;
  int disaggregation_hosts = 0;  // 0: one host
  double link_gbit = 10;
  int kv_bytes_per_token = 12288;  // those of shape small
};

struct Named {
  std::string policy;
  SchedulePolicy value = SchedulePolicy::fcfs;
};

std::vector<FlagGroup> flags_of(SimulateFlags& f) {
  SchedulerOptions& s = f.scheduler;
  return {
      {"Traffic",
       {{"trace", &f.trace, "JSON lines: Mooncake's, or the log of bench serving --log", ""},
        {"num-requests", &f.synthetic.num_requests, "requests in all, without --trace", ""},
        {"request-rate", &f.synthetic.request_rate, "requests a second, at random; 0: all at once",
         ""},
        {"input-len", &f.synthetic.input_len, "longest prompt, tokens", ""},
        {"output-len", &f.synthetic.output_len, "longest answer, tokens", ""},
        {"shared-prefix", &f.synthetic.shared_prefix_len, "tokens that all prompts begin with", ""},
        {"seed", &f.synthetic.seed, "seed of lengths and gaps", ""},
        {"max-concurrency", &f.concurrency,
         "clients, each with one request at a time; 0: as the trace says, or no limit", ""}}},
      {"Steps",
       {{"step-model", &f.step_model,
         "output of bench one-batch --json, or a saved model; none: the shipped one", ""},
        {"save-step-model", &f.save_step_model, "writes the model that is used", ""}}},
      {"Scheduler",
       {{"policies", &f.policies, "as fcfs,lpm; default: all, or with --compare that of the log",
         ""},
        {"page-size", &s.page_tokens, "tokens of a KV page", ""},
        {"max-total-tokens", &f.max_total_tokens, "KV capacity, tokens", ""},
        {"max-running-requests", &s.max_running_requests, "requests at once", ""},
        {"max-queued-requests", &s.max_queued_requests, "requests that wait; more are refused", ""},
        {"chunked-prefill-size", &s.chunk_tokens, "tokens of a chunk; -1: whole prompts", ""},
        {"max-prefill-tokens", &s.max_prefill_tokens, "prompt tokens of one pass", ""},
        {"max-chunked-requests", &s.max_chunked_requests,
         "long prompts that share the steps, computed in part at the same time", ""},
        {"prefill-policy", &f.prefill_policy,
         "as of serve: auto, which is latency with half of each step for prompts; prefill-first: "
         "running requests wait; mixed: they join; latency: chunks sized for --itl-slo-ms",
         ""},
        {"enable-mixed-chunk", &f.mixed_chunk, "same as --prefill-policy mixed", ""},
        {"itl-slo-ms", &f.itl_slo_ms,
         "goal for the time between two tokens of a request, ms; for --prefill-policy latency", ""},
        {"schedule-conservativeness", &s.conservativeness,
         "factor of the memory reserved for running requests", ""},
        {"disable-radix-cache", &f.no_prefix_cache, "reuses no prefix", ""}}},
      {"Hosts",
       {{"disaggregation-hosts", &f.disaggregation_hosts,
         "number of hosts, 2 or more: compares all hosts doing both with 1, 2, ... of them "
         "computing only prompts",
         ""},
        {"link-gbit", &f.link_gbit, "Gbit/s of each host's link, for pages", ""},
        {"kv-bytes-per-token", &f.kv_bytes_per_token,
         "bytes of keys and values, as hocket plan prints them; the default is that of shape small",
         ""}}},
      {"Output",
       {{"csv", &f.csv, "writes the table to this file", ""},
        {"compare", &f.compare, "prints the figures that the log measured, too", ""}}}};
}

Result<bool> parse(SimulateFlags& f, const Arguments& arguments) {
  return parse_flags(
      {.command = "simulate",
       .about = "run the real scheduler in virtual time, on recorded or random requests",
       .groups = flags_of(f),
       .takes_config = false},
      arguments);
}

Result<std::vector<Named>> policies_of(const SimulateFlags& f, const Trace& trace) {
  std::vector<Named> chosen;
  if (f.policies.empty() && f.disaggregation_hosts > 0)
    return std::vector<Named>{{"fcfs", SchedulePolicy::fcfs}};
  if (f.policies.empty() && f.compare) return std::vector<Named>{{trace.policy_name, trace.policy}};
  if (f.policies.empty()) {
    for (const std::string_view name : schedule_policy_names())
      chosen.push_back({std::string(name), parse_schedule_policy(name).value()});
    return chosen;
  }
  for (const std::string& list : f.policies)
    for (size_t at = 0; at <= list.size();) {
      const size_t end = std::min(list.find(',', at), list.size());
      const std::string name = list.substr(at, end - at);
      HOCKET_TRY(const SchedulePolicy policy, parse_schedule_policy(name));
      chosen.push_back({name, policy});
      at = end + 1;
    }
  return chosen;
}

// Sets the prefill policy as serve would. With a log, its policy stays unless a flag names another.
// Errors: bad_value.
Result<void> settle_prefill(SimulateFlags& f) {
  SchedulerOptions& s = f.scheduler;
  s.itl_goal = from_seconds(std::clamp(f.itl_slo_ms, 0.0, 1e12) / 1e3);
  const bool as_logged = f.prefill_policy == kAsLogged;
  if (as_logged && !f.mixed_chunk) return {};
  ServerSettings settings;
  settings.scheduler.prefill_policy =
      as_logged ? prefill_policy_name(s.prefill_policy) : f.prefill_policy;
  settings.scheduler.enable_mixed_chunk = f.mixed_chunk;
  settings.scheduler.chunked_prefill_size = s.chunk_tokens;
  HOCKET_TRY(const PrefillChoice choice, choose_prefill(settings));
  s.prefill_policy = choice.policy;
  s.prompt_share = choice.prompt_share;
  return {};
}

Result<void> check_hosts(const SimulateFlags& f) {
  if (f.disaggregation_hosts == 0) return {};
  if (f.disaggregation_hosts < 2 || f.disaggregation_hosts > kMaxVirtualHosts)
    return fail(error(ErrorCode::bad_value,
                      "--disaggregation-hosts is {}, must be 0 or between 2 and {}",
                      f.disaggregation_hosts, kMaxVirtualHosts)
                    .with_param("disaggregation-hosts")
                    .with_fix("--disaggregation-hosts 2"));
  if (f.compare || f.no_prefix_cache)
    return fail(error(ErrorCode::bad_value,
                      "--disaggregation-hosts moves pages between the prefix caches of several "
                      "hosts, and {}",
                      f.compare ? "--compare needs the one host that was measured"
                                : "--disable-radix-cache takes those away")
                    .with_fix("one of the two"));
  HOCKET_TRY_VOID(check_number("link-gbit", f.link_gbit, {.low = 1e-3, .high = 1e6}));
  return check_number("kv-bytes-per-token", f.kv_bytes_per_token, {.low = 1, .high = 1e9});
}

// Completes the scheduler's options from the flags and checks them. Errors: bad_value.
Result<void> complete(SimulateFlags& f) {
  SchedulerOptions& s = f.scheduler;
  if (s.page_tokens < 1 || (s.page_tokens & (s.page_tokens - 1)) != 0)
    return fail(
        error(ErrorCode::bad_value, "--page-size is {}, must be a power of two", s.page_tokens)
            .with_fix("--page-size 16"));
  constexpr double kMaxPages = 1 << 28;
  HOCKET_TRY_VOID(
      check_number("max-total-tokens", f.max_total_tokens,
                   {.low = static_cast<double>(s.page_tokens), .high = kMaxPages * s.page_tokens}));
  HOCKET_TRY_VOID(check_hosts(f));
  s.num_pages = static_cast<int>(f.max_total_tokens / s.page_tokens);
  s.prefix_cache = !f.no_prefix_cache;
  HOCKET_TRY_VOID(settle_prefill(f));
  return check(s);
}

void print_head(const Trace& trace, const StepModel& model, const SchedulerOptions& s) {
  int64_t prompt = 0, output = 0;
  for (const TraceRequest& request : trace.requests) {
    prompt += request.input_len;
    output += request.output_len;
  }
  fmt::print(
      "trace    {} | {} requests | {} prompt and {} output tokens | {}\n", trace.name,
      trace.requests.size(), prompt, output,
      trace.concurrency > 0 ? fmt::format("{} clients", trace.concurrency) : "sent when due");
  fmt::print(
      "steps    {} | us = {:.0f} + {:.1f} rows + {:.1f} outputs + {:.4f} keys + {:.2f} experts | "
      "off by {:.1f} % (median), {:.1f} % (most)\n",
      model.name, model.fixed_us, model.row_us, model.output_us, model.key_us, model.expert_us,
      100 * model.residual_median, 100 * model.max_residual);
  std::string prefills(prefill_policy_name(s.prefill_policy));
  if (s.prefill_policy == PrefillPolicy::latency)
    prefills +=
        fmt::format(", {:g} ms, {:g} % for prompts", to_ms(s.itl_goal), 100 * s.prompt_share);
  fmt::print("pool     {} pages of {} tokens | {} running | chunk {} | {}{}\n\n", s.num_pages,
             s.page_tokens, s.max_running_requests, s.chunk_tokens, prefills,
             s.prefix_cache ? "" : " | no prefix cache");
}

void print_table(const std::vector<Named>& policies, const std::vector<VirtualRun>& runs) {
  size_t width = 23;
  for (const Named& one : policies) width = std::max(width, one.policy.size() + 1);
  fmt::print("{:<{}}{:>9}{:>9}{:>9}{:>10}{:>10}{:>9}{:>9}{:>7}{:>9}{:>8}{:>8}\n", "policy", width,
             "s", "req/s", "tok/s", "ttft p50", "p99 ms", "itl p50", "p99 ms", "hit %", "retract",
             "refuse", "fail");
  for (size_t i = 0; i < runs.size(); ++i) {
    const VirtualRun& r = runs[i];
    const RunFigures f = r.figures();
    fmt::print(
        "{:<{}}{:>9.2f}{:>9.2f}{:>9.1f}{:>10.1f}{:>10.1f}{:>9.1f}{:>9.1f}{:>7.1f}{:>9}{:>8}{:>8}\n",
        policies[i].policy, width, f.seconds, f.seconds > 0 ? r.num_ok / f.seconds : 0,
        f.output_tokens_per_s, f.ttft_p50_ms, f.ttft_p99_ms, f.itl_p50_ms, f.itl_p99_ms,
        100 * f.cached_share, r.num_retractions, r.num_refused, r.num_failed);
  }
}

void print_comparison(const RunFigures& measured, const std::string& policy,
                      const RunFigures& simulated) {
  fmt::print("\n{:<23}{:>12}{:>12}{:>8}\n", policy, "measured", "simulated", "ratio");
  const auto row = [](const char* name, double a, double b) {
    fmt::print("{:<23}{:>12.2f}{:>12.2f}{:>8.3f}\n", name, a, b, a > 0 ? b / a : 0);
  };
  row("seconds", measured.seconds, simulated.seconds);
  row("output tok/s", measured.output_tokens_per_s, simulated.output_tokens_per_s);
  row("ttft p50 ms", measured.ttft_p50_ms, simulated.ttft_p50_ms);
  row("ttft p99 ms", measured.ttft_p99_ms, simulated.ttft_p99_ms);
  row("itl p50 ms", measured.itl_p50_ms, simulated.itl_p50_ms);
  row("itl p99 ms", measured.itl_p99_ms, simulated.itl_p99_ms);
  row("e2e p50 ms", measured.e2e_p50_ms, simulated.e2e_p50_ms);
  row("cached %", 100 * measured.cached_share, 100 * simulated.cached_share);
}

// Returns true if hosts of two kinds keep the interval where equal hosts do not, at no more than a
// tenth fewer tokens; or else if they complete a tenth more.
bool pays(const RunFigures& mixed, const RunFigures& split, double itl_slo_ms) {
  const auto keeps = [&](const RunFigures& f) { return f.itl_p99_ms <= itl_slo_ms; };
  const double mixed_rate = mixed.output_tokens_per_s, split_rate = split.output_tokens_per_s;
  if (split_rate <= 0) return false;
  if (keeps(split) != keeps(mixed)) return keeps(split) && split_rate * kMinGain >= mixed_rate;
  return split_rate >= mixed_rate * kMinGain;
}

// Says how many of the hosts compute prompts alone.
std::string division_of_hosts(const SimulateFlags& f, int num_prefill) {
  return num_prefill == 0
             ? fmt::format("{} do both", f.disaggregation_hosts)
             : fmt::format("{} of {} for prompts", num_prefill, f.disaggregation_hosts);
}

// Says on which hosts the traffic runs best with one policy. The first run is that of equal hosts.
void print_verdict(const SimulateFlags& f, std::span<const Named> names,
                   std::span<const VirtualRun> runs) {
  const std::string policy(schedule_policy_name(names[0].value));
  const RunFigures mixed = runs[0].figures();
  size_t best = 0;
  for (size_t i = 1; i < runs.size(); ++i) {
    const bool completes = runs[i].num_ok >= runs[0].num_ok;
    const RunFigures now = runs[i].figures();
    if (!completes || !pays(mixed, now, f.itl_slo_ms)) continue;
    if (best == 0 || runs[best].figures().ttft_p99_ms > now.ttft_p99_ms) best = i;
  }
  if (best == 0)
    return fmt::print("\n{}: prefill apart from decode does not pay for this traffic\n", policy);
  const RunFigures split = runs[best].figures();
  fmt::print(
      "\n{}: prefill apart from decode pays, {}: {:.1f} instead of {:.1f} tok/s, itl p99 {:.1f} "
      "instead of {:.1f} ms (--itl-slo-ms {:g}), ttft p99 {:.1f} instead of {:.1f} ms\n",
      policy, division_of_hosts(f, static_cast<int>(best)), split.output_tokens_per_s,
      mixed.output_tokens_per_s, split.itl_p99_ms, mixed.itl_p99_ms, f.itl_slo_ms,
      split.ttft_p99_ms, mixed.ttft_p99_ms);
}

// Plays the trace with each policy on equal hosts, and with each number of them for prompts.
// Replaces `names` by one name a run: for each policy as many runs as hosts. Changes
// f.scheduler.policy.
Result<std::vector<VirtualRun>> run_on_hosts(SimulateFlags& f, const Trace& trace,
                                             const StepModel& model, std::vector<Named>& names) {
  const std::vector<Named> policies = std::exchange(names, {});
  std::vector<VirtualRun> runs;
  for (const Named& policy : policies)
    for (int prefill = 0; prefill < f.disaggregation_hosts; ++prefill) {
      const std::string hosts = division_of_hosts(f, prefill);
      names.push_back({policies.size() == 1 ? hosts : fmt::format("{}, {}", policy.policy, hosts),
                       policy.value});
      f.scheduler.policy = policy.value;
      HOCKET_TRY(VirtualRun run,
                 run_in_virtual_time(trace, model, f.scheduler,
                                     {.num_prefill = prefill,
                                      .num_others = f.disaggregation_hosts - prefill,
                                      .link_bytes_per_s = f.link_gbit * 1e9 / 8,
                                      .kv_bytes_per_token = 1.0 * f.kv_bytes_per_token}));
      runs.push_back(std::move(run));
    }
  return runs;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (!file) return fail(ErrorCode::io, "{} cannot be written", path);
  return {};
}

std::string csv_of(const std::vector<Named>& policies, const std::vector<VirtualRun>& runs) {
  std::string text =
      "policy,seconds,num_ok,num_refused,num_failed,num_steps,output_tokens_per_s,ttft_p50_ms,"
      "ttft_p99_ms,itl_p50_ms,itl_p99_ms,e2e_p50_ms,cached_share,num_retractions\n";
  for (size_t i = 0; i < runs.size(); ++i) {
    const VirtualRun& r = runs[i];
    const RunFigures f = r.figures();
    text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", policies[i].policy,
                        f.seconds, r.num_ok, r.num_refused, r.num_failed, r.num_steps,
                        f.output_tokens_per_s, f.ttft_p50_ms, f.ttft_p99_ms, f.itl_p50_ms,
                        f.itl_p99_ms, f.e2e_p50_ms, f.cached_share, r.num_retractions);
  }
  return text;
}

// Reads or makes the trace. If it is a log of a real run, the log's scheduler options become the
// defaults, and the flags are parsed again on top of them.
Result<Trace> choose_traffic(SimulateFlags& f, const Arguments& arguments) {
  if (f.trace.empty() && f.compare)
    return fail(error(ErrorCode::usage, "--compare takes a log of a real run")
                    .with_fix("hocket bench serving --log FILE, then hocket simulate --trace FILE "
                              "--compare"));
  HOCKET_TRY(Trace trace, f.trace.empty() ? make_trace(f.synthetic) : read_trace(f.trace));
  if (f.compare && !trace.measured)
    return fail(error(ErrorCode::bad_value, "{} does not say what was measured", f.trace)
                    .with_fix("a log of hocket bench serving --log"));
  if (trace.scheduler) {
    f.scheduler = *trace.scheduler;
    f.max_total_tokens = int64_t{f.scheduler.num_pages} * f.scheduler.page_tokens;
    f.no_prefix_cache = !f.scheduler.prefix_cache;
    f.prefill_policy = kAsLogged;
    if (f.scheduler.itl_goal > Duration(0)) f.itl_slo_ms = to_ms(f.scheduler.itl_goal);
    f.policies.clear();
    HOCKET_TRY_VOID(parse(f, arguments));
  }
  if (f.concurrency > 0) {
    trace.concurrency = f.concurrency;
    trace.since =
        f.trace.empty() && f.synthetic.request_rate == 0 ? Trace::Since::sent : trace.since;
  }
  return trace;
}

Result<int> simulate_all(const Arguments& arguments) {
  SimulateFlags f;
  HOCKET_TRY(const bool go, parse(f, arguments));
  if (!go) return 0;
  log::set_level(log::Level::error);
  HOCKET_TRY(const Trace trace, choose_traffic(f, arguments));
  HOCKET_TRY_VOID(complete(f));
  SchedulerOptions& options = f.scheduler;
  StepModel model = shipped_step_model();
  if (!f.step_model.empty()) {
    HOCKET_TRY(model, read_step_model(f.step_model));
  }
  if (!f.save_step_model.empty())
    HOCKET_TRY_VOID(write_file(f.save_step_model, to_json(model) + "\n"));
  HOCKET_TRY(std::vector<Named> policies, policies_of(f, trace));
  print_head(trace, model, options);
  std::vector<VirtualRun> runs;
  if (f.disaggregation_hosts > 0) {
    HOCKET_TRY(runs, run_on_hosts(f, trace, model, policies));
  }
  for (const Named& policy : policies) {
    if (f.disaggregation_hosts > 0) break;
    options.policy = policy.value;
    HOCKET_TRY(VirtualRun result, run_in_virtual_time(trace, model, options));
    runs.push_back(std::move(result));
  }
  print_table(policies, runs);
  const auto num_hosts = static_cast<size_t>(f.disaggregation_hosts);
  for (size_t i = 0; num_hosts > 0 && i < runs.size(); i += num_hosts)
    print_verdict(f, std::span(policies).subspan(i, num_hosts),
                  std::span(runs).subspan(i, num_hosts));
  if (f.compare)
    for (size_t i = 0; i < runs.size(); ++i)
      print_comparison(*trace.measured, policies[i].policy, runs[i].figures());
  if (!f.csv.empty()) HOCKET_TRY_VOID(write_file(f.csv, csv_of(policies, runs)));
  return 0;
}

}  // namespace

int simulate(const Arguments& arguments) {
  const Result<int> done = simulate_all(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
