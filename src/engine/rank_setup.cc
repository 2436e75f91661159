#include "engine/rank_setup.h"

#include <algorithm>

#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "cluster/member.h"
#include "cluster/spawn.h"
#include "engine/plan/expert_places.h"
#include "engine/plan/folder_limit.h"
#include "engine/plan/scheduler_settings.h"
#include "engine/runner/worker_choice.h"
#include "policy/routing/request_router.h"

namespace hocket {
namespace {

// A guess: a core of a present server.
constexpr MachineSpeed kCoreSpeed{
    .read_bytes_per_s = 8e9, .operations_per_s = 80e9, .integer_operations_per_s = 160e9};

// Limits of a simulated network: on a slower one a rank would look lost.
constexpr double kMinLinkGbit = 0.001, kMaxLatencyUs = 1e6;

static_assert(kMaxRanks <= kMaxExpertRanks);

Error refused(const char* flag, std::string why, std::string fix) {
  return error(ErrorCode::bad_value, "{}", why).with_param(flag).with_fix(std::move(fix));
}

// Adds up the progress that the ranks report.
class SharedProgress {
 public:
  SharedProgress(size_t num_ranks, const std::function<void(const LoadProgress&)>& tell)
      : of_(num_ranks), tell_(tell) {}

  void report(size_t rank, const LoadProgress& progress) {
    MutexLock lock(mutex_);
    of_[rank] = progress;
    LoadProgress sum;
    for (const LoadProgress& one : of_) {
      if (one.bytes_total == 0) return;  // not all have begun
      sum.bytes_done += one.bytes_done;
      sum.bytes_total += one.bytes_total;
    }
    if (tell_) tell_(sum);
  }

 private:
  Mutex mutex_;
  std::vector<LoadProgress> of_ HOCKET_GUARDED_BY(mutex_);
  const std::function<void(const LoadProgress&)>& tell_;
};

// Waits until all ranks agree on a number of replicas. Errors: as join_before_loading().
Result<int> wait_for_replicas(ControlPlane& control, Duration max_wait) {
  constexpr Duration kLogEvery = std::chrono::seconds(5);
  const TimePoint end = RealClock().now() + max_wait;
  for (;;) {
    const Duration left = std::max(end - RealClock().now(), Duration(0));
    const auto agreed = control.wait_replicas(std::min(kLogEvery, left));
    if (agreed || agreed.error().code != ErrorCode::timed_out) return agreed;
    const std::string who = missing(control.view());
    const std::string_view sign = who.empty() ? "" : ": ";
    if (left <= kLogEvery)
      return fail(error(ErrorCode::lost_rank,
                        "not all ranks have said for how many experts they have memory after "
                        "{:g} s{}{}",
                        to_seconds(max_wait), sign, who)
                      .with_param("rank-wait")
                      .with_fix("start all ranks within that time, raise --rank-wait, or give all "
                                "of them the same number in --ep-num-redundant-experts, which "
                                "needs no agreement"));
    log::info(
        "loading waits until all ranks have reported how many experts fit into their memory{}{}",
        sign, who);
  }
}

}  // namespace

Result<void> check_parallel(const ServerSettings& settings) {
  const ParallelSettings& p = settings.parallel;
  HOCKET_TRY_VOID(parse_routing_policy(p.dp_routing));
  if (p.enable_prefill_delayer && p.prefill_delayer_max_passes < 1)
    return fail(refused("prefill-delayer-max-passes",
                        fmt::format("--prefill-delayer-max-passes is {}, must be at least 1",
                                    p.prefill_delayer_max_passes),
                        "--prefill-delayer-max-passes 30"));
  if (p.ep_size < 1 || p.ep_size > kMaxRanks)
    return fail(refused("ep-size",
                        fmt::format("--ep-size {} is not in 1 to {}", p.ep_size, kMaxRanks),
                        "--ep-size 1"));
  const bool has_rate = p.ep_link_gbit == 0 || p.ep_link_gbit >= kMinLinkGbit;
  if (!has_rate || !(p.ep_link_latency_us >= 0 && p.ep_link_latency_us <= kMaxLatencyUs))
    return fail(refused("ep-link-gbit",
                        fmt::format("--ep-link-gbit is 0, or {} or more, and --ep-link-latency-us "
                                    "0 to {:.0f}",
                                    kMinLinkGbit, kMaxLatencyUs),
                        "--ep-link-gbit 1 --ep-link-latency-us 50"));
  HOCKET_TRY_VOID(check_places(p));
  if (p.ep_size == 1) {
    if (p.ep_link_gbit > 0 || p.ep_link_latency_us > 0)
      return fail(refused("ep-link-gbit", "--ep-link-* changes nothing with one rank",
                          "--ep-size 2, or more"));
    return {};
  }
  if (settings.scheduler.kv_events)
    return fail(refused("kv-events",
                        fmt::format("--kv-events describes one prefix cache, --ep-size {} has as "
                                    "many",
                                    p.ep_size),
                        "one of the two"));
  return {};
}

// With several ranks, the cores that the flags name are divided among them.
Result<void> check_one_process(const ParallelSettings& parallel) {
  if (const double wait = parallel.lost_rank_wait_s; wait != ParallelSettings().lost_rank_wait_s)
    return fail(error(ErrorCode::bad_value,
                      "--lost-rank-wait {:g} lets requests wait until a lost rank is back, but no "
                      "rank has a process of its own, so none can rejoin",
                      wait)
                    .with_param("lost-rank-wait")
                    .with_fix("leave it out, or give the ranks processes (--ranks-per-node, "
                              "--nnodes)"));
  if (const int tolerate_ranks = parallel.tolerate_ranks; tolerate_ranks != 0)
    return fail(error(ErrorCode::bad_value,
                      "--tolerate-ranks {} lets ranks serve on when others are lost, but no rank "
                      "has a process of its own, so they are lost together",
                      tolerate_ranks)
                    .with_param("tolerate-ranks")
                    .with_fix("leave it out, or give the ranks processes (--ranks-per-node, "
                              "--nnodes)"));
  return {};
}

Result<Machine> machine_for(const ComputeSettings& settings) {
  Machine machine = inspect_machine();
  if (settings.cpu_bind == "auto" || settings.cpu_bind == "none") return machine;
  HOCKET_TRY(WorkerPool::Options listed, choose_workers({.cpu_bind = settings.cpu_bind}, machine));
  machine.cpus = std::move(listed.cpus);
  machine.num_cores = static_cast<int>(machine.cpus.size());
  return machine;
}

LinkModel link_model(const ParallelSettings& settings) {
  return {.bytes_per_s = settings.ep_link_gbit * 1e9 / 8,
          .latency = from_seconds(settings.ep_link_latency_us * 1e-6)};
}

std::string network_name(const ParallelSettings& settings) {
  std::string name = "loopback";
  if (settings.ep_link_gbit > 0) name += fmt::format(", {:g} Gbit/s", settings.ep_link_gbit);
  if (settings.ep_link_latency_us > 0)
    name += fmt::format(", {:g} us", settings.ep_link_latency_us);
  return name;
}

std::vector<Machine> share_machine(const Machine& machine, int num_ranks) {
  std::vector<Machine> shares;
  for (CoreSet& cores : share_cores(read_cpu_locations(machine), num_ranks)) {
    Machine& share = shares.emplace_back(machine);
    if (!cores.cpus.empty()) share.cpus = std::move(cores.cpus);
    share.num_cores = static_cast<int>(share.cpus.size());
    share.num_numa_nodes = std::max(1, static_cast<int>(cores.nodes.size()));
    share.memory_bytes /= num_ranks;
    share.memory_available_bytes /= num_ranks;
  }
  return shares;
}

Result<RankConfig> join_before_loading(ControlPlane& control, const ServerSettings& settings,
                                       Duration max_wait) {
  const Identity& self = control.self();
  HOCKET_TRY(Machine machine, machine_for(settings.compute));
  machine.memory_bytes /= self.ranks_per_node;
  machine.memory_available_bytes =
      memory_beside_folder(machine.memory_available_bytes / self.ranks_per_node, settings);
  RankConfig config{.rank = self.rank, .num_ranks = self.num_ranks, .machine = std::move(machine)};
  HOCKET_TRY_VOID(check_places(settings.parallel));
  HOCKET_TRY(const ModelChoice choice, choose_model_form(settings));
  HOCKET_TRY(const std::optional<int> own, auto_replicas(settings.parallel, choice, self.num_ranks,
                                                         config.machine.memory_available_bytes));
  if (!own) return config;
  control.own_heartbeat().set_max_replicas(*own);
  HOCKET_TRY(
      config.replicas,
      wait_for_replicas(control, std::max(max_wait, from_seconds(settings.parallel.rank_wait_s))));
  return config;
}

Result<std::vector<std::unique_ptr<Runner>>> load_ranks(const RankLoading& loading) {
  const auto num_ranks = static_cast<size_t>(loading.settings.parallel.ep_size);
  HOCKET_TRY(const Machine machine, machine_for(loading.settings.compute));
  std::vector<Machine> shares = share_machine(machine, static_cast<int>(num_ranks));
  const int64_t left = memory_beside_folder(
      machine.memory_available_bytes / loading.settings.parallel.ep_size, loading.settings);
  for (Machine& one : shares) one.memory_available_bytes = left;
  ServerSettings settings = loading.settings;
  if (settings.compute.cpu_bind != "none") settings.compute.cpu_bind = "auto";

  SharedProgress progress(num_ranks, loading.progress);
  std::vector<std::optional<Result<std::unique_ptr<Runner>>>> made(num_ranks);
  {
    std::vector<Thread> threads;
    for (size_t i = 0; i < num_ranks; ++i)
      threads.emplace_back(Thread::Options{.name = fmt::format("load{}", i)}, [&, i] {
        // Memory is placed on the node that first writes it, so the loading thread is pinned.
        const bool pins = settings.compute.cpu_bind != "none" && machine.num_numa_nodes > 1;
        if (pins) static_cast<void>(pin_self({.cpus = shares[i].cpus, .nodes = {}}, 1));
        const RankConfig seat{.rank = static_cast<int>(i),
                              .num_ranks = static_cast<int>(num_ranks),
                              .machine = shares[i]};
        made[i] = Runner::create(
            {.settings = settings,
             .progress = [&, i](const LoadProgress& now) { progress.report(i, now); },
             .tokenizer_eos = loading.tokenizer_eos,
             .seat = &seat});
      });
  }
  std::vector<std::unique_ptr<Runner>> runners;
  for (auto& runner : made) {
    if (!*runner) return std::unexpected(std::move(*runner).error());
    runners.push_back(**std::move(runner));
  }
  return runners;
}

Result<std::shared_ptr<const StageEstimate>> estimate_stages(const Runner& runner,
                                                             const ParallelSettings& settings) {
  HOCKET_TRY(const ModelCost cost, ModelCost::measure(runner.choice()));
  const double cores = runner.info().num_workers;
  StageLink link{.gbit_per_s = settings.ep_link_gbit, .latency_us = settings.ep_link_latency_us};
  const bool has_processes = settings.nnodes > 0 || settings.ranks_per_node > 0;
  if (has_processes) link = kGuessedLink;
  const StageEstimateInput input{
      .speed = {.read_bytes_per_s = cores * kCoreSpeed.read_bytes_per_s,
                .operations_per_s = cores * kCoreSpeed.operations_per_s,
                .integer_operations_per_s = cores * kCoreSpeed.integer_operations_per_s},
      .num_ranks = runner.info().num_ranks,
      .link = link};
  return std::make_shared<const StageEstimate>(runner.choice(), cost, input);
}

EngineInfo join_infos(std::span<const std::unique_ptr<Runner>> runners) {
  EngineInfo all = runners.front()->info();
  for (const std::unique_ptr<Runner>& runner : runners.subspan(1)) {
    const EngineInfo& one = runner->info();
    all.num_workers += one.num_workers;
    all.context_length = std::min(all.context_length, one.context_length);
    all.max_running_requests += one.max_running_requests;
    all.num_pages += one.num_pages;
    all.max_total_tokens += one.max_total_tokens;
    all.weight_bytes += one.weight_bytes;
    all.kv_bytes += one.kv_bytes;
    all.num_window_pages += one.num_window_pages;
    all.window_bytes += one.window_bytes;
    all.num_states += one.num_states;
    all.state_bytes += one.state_bytes;
    all.work_bytes += one.work_bytes;
    all.index_bytes += one.index_bytes;
    all.load_seconds = std::max(all.load_seconds, one.load_seconds);
    all.ranks.push_back(one.ranks.front());
  }
  return all;
}

}  // namespace hocket
