// hocket serve: loads a model and answers over HTTP until SIGTERM or SIGINT.
#include <fmt/core.h>

#include <optional>
#include <string>
#include <vector>

#include "apps/cluster_process.h"
#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/join.h"
#include "apps/running_server.h"
#include "apps/serve_until_signal.h"
#include "apps/service_manager.h"
#include "base/black_box.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/show_bytes.h"
#include "core/version.h"
#include "engine/plan/scheduler_settings.h"

namespace hocket {
namespace {

// Returns {0, 1, 2, 3, 8} as "0-3,8".
std::string show_list(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += text.empty() ? "" : ",";
    text += end - i == 1 ? std::to_string(numbers[i])
                         : fmt::format("{}-{}", numbers[i], numbers[end - 1]);
    i = end;
  }
  return text;
}

// Logs a line for the service and one for each rank of this process; info.ranks[0] is rank `first`.
void log_ranks(const EngineInfo& info, const ParallelSettings& parallel, int first) {
  log::info("ranks: {} over {}, {} combine groups, routing {}, overlap {} ({} orders)",
            parallel.ep_size, info.network, info.combine_groups, parallel.dp_routing, info.overlap,
            info.num_orders);
  if (parallel.tolerate_ranks > 0)
    log::info(
        "lost ranks: while at most {} of {} are missing, the others keep serving; if more are, all "
        "wait for them, running requests for up to {:g} s",
        parallel.tolerate_ranks, parallel.ep_size, parallel.lost_rank_wait_s);
  else if (std::ssize(info.ranks) < parallel.ep_size)
    log::info("a lost rank: all others wait until it is back, running requests for up to {:g} s",
              parallel.lost_rank_wait_s);
  for (size_t i = 0; i < info.ranks.size(); ++i) {
    const RankInfo& rank = info.ranks[i];
    log::info("rank {}: cores {}, {} threads; experts {}; {} KV tokens; weights {}",
              static_cast<size_t>(first) + i, rank.cpus.empty() ? "any" : show_list(rank.cpus),
              rank.num_workers, show_list(rank.experts), rank.max_total_tokens,
              show_bytes(rank.weight_bytes));
  }
}

void log_start(const EngineInfo& info, const ServerSettings& settings, int first_rank) {
  const bool several = settings.parallel.ep_size > 1;
  log::info("machine: {}", describe(inspect_machine()));
  log::info("form: {}", form_of(info));
  if (several) log_ranks(info, settings.parallel, first_rank);
  log::info("kv: {} tokens in {} pages, {}; weights {}; loaded in {:.2f} s", info.max_total_tokens,
            info.num_pages, show_bytes(info.kv_bytes), show_bytes(info.weight_bytes),
            info.load_seconds);
  if (info.num_window_pages > 0)
    log::info("window layers: {} of the kv pages' tokens, {} pages, {} of that memory",
              int64_t{info.num_window_pages} * info.page_tokens, info.num_window_pages,
              show_bytes(info.window_bytes));
  if (info.num_states > 0)
    log::info("states: {} slots, {}", info.num_states, show_bytes(info.state_bytes));
  if (info.index_bytes > 0)
    log::info("prefix cache: its indexes take at most {} beside the pages",
              show_bytes(info.index_bytes));
  const SchedulerSettings& schedule = settings.scheduler;
  const bool chosen = schedule.overlap_schedule == "auto" && !schedule.disable_overlap_schedule;
  if (info.overlap_schedule == OverlapSchedule::measured)
    log::info("overlap schedule: off, until it is measured to be faster (auto)");
  else
    log::info("overlap schedule: {}{}", info.overlap_schedule == OverlapSchedule::on ? "on" : "off",
              chosen ? " (auto: drafts need the tokens of the step before)" : "");
  const SpeculationInfo& drafts = info.speculation;
  if (drafts.max_drafts > 0)
    log::info(
        "speculation: {}{}, at most {} drafts per answer; copies of grammars and tables of n-grams "
        "take up to {} per rank",
        drafts.algorithm == "auto" ? "NEXTN and NGRAM" : drafts.algorithm,
        speculation_named(settings.speculation.algorithm) == "auto" ? " (auto)" : "",
        drafts.max_drafts, show_bytes(drafts.draft_bytes));
}

// Finds the number of ranks and which of them run in this process. Writes the numbers of ranks and
// of hosts to `p`.
Result<Launch> choose_ranks(ParallelSettings& p) {
  LaunchFlags flags{.dist_init_addr = p.dist_init_addr, .has_store = !p.cluster_store.empty()};
  if (p.nnodes != 0) flags.nnodes = p.nnodes;
  if (p.node_rank != -1) flags.node_rank = p.node_rank;
  if (p.ep_size != 0) flags.ep_size = p.ep_size;
  if (p.ranks_per_node != 0) flags.ranks_per_node = p.ranks_per_node;
  HOCKET_TRY(Launch launch, read_launch(flags, this_environment()));
  p.ep_size = launch.num_ranks;
  if (launch.num_ranks > 1 && !launch.in_process)
    p.nnodes = (launch.num_ranks + launch.ranks_per_node - 1) / launch.ranks_per_node;
  return launch;
}

// Opens the file to which the last steps and requests go if this process crashes or hangs.
Result<void> open_black_box(const ServerSettings& settings, const Launch& launch) {
  if (settings.observe.crash_dump_folder.empty()) return {};
  std::string about = fmt::format(R"({{"version":"{}","rank":{},"ranks":{},"model":)", kVersion,
                                  launch.rank, launch.num_ranks);
  append_json_string(about, settings.model.model_path);
  about += '}';
  HOCKET_TRY_VOID(
      black_box::open({.folder = settings.observe.crash_dump_folder, .about = std::move(about)}));
  log::info("black box: a crash, or the watchdog, writes {}", black_box::path());
  return {};
}

// Reports to the log and systemd when the service becomes ready, and when it stops being ready.
class Readiness {
 public:
  explicit Readiness(std::string url) : url_(std::move(url)) {}
  void update(const Engine& engine) {
    notify_service_manager("WATCHDOG=1");
    const EngineStats stats = engine.stats();
    const std::optional<Error>& lost = stats.lost;
    const std::string& model = engine.info().served_model_name;
    // While the service is not ready, it is not known which ranks it will lack.
    const bool changes = !lost && stats.missing_ranks != missing_;
    if (changes) note_missing(stats.missing_ranks);
    if (changes || ready_ != !lost.has_value())
      notify_service_manager(lost ? fmt::format("STATUS=not ready: {}", lost->message)
                                  : fmt::format("READY=1\nSTATUS={} serving {}{}{}", url_, model,
                                                missing_.empty() ? "" : "; ", missing_));
    if (ready_ == !lost.has_value()) return;
    if (!lost)
      log_ready(model);
    else if (!ready_)
      log::info("listening: {}, not ready yet: {}", url_, lost->message);
    else
      log::warning("not ready: {}", lost->message);
    ready_ = !lost.has_value();
  }

 private:
  void note_missing(const std::string& ranks) {
    missing_ = ranks;
    if (ranks.empty()) return log::info("all ranks serve again");
    log::warning(
        "some ranks are missing: {}. The others compute their experts, so steps take longer",
        ranks);
  }
  void log_ready(const std::string& model) const {
    log::info("ready: {} serving {}", url_, model);
    log::info("page: {}/ in a browser: chat, requests, experts, steps, settings", url_);
  }

  const std::string url_;
  std::optional<bool> ready_;  // the state last reported; nullopt: none was
  std::string missing_;        // the ranks that were last reported as missing
};

// Returns the limits for the signal thread. After its own drain a rank of several processes still
// serves the other ranks (RankParts::drain_time), and ranks that it started may take patience().
SignalListener::Limits limits_of_end(const HttpSettings& http, const ClusterProcess* cluster) {
  const Duration drain = from_seconds(http.shutdown_timeout_s);
  const Duration others = cluster == nullptr ? Duration{} : drain + cluster->patience();
  const Duration silence = from_seconds(http.watchdog_timeout_s);
  return {.end = drain + others + kEndMargin,
          .silence = silence > Duration{} ? silence + kEndMargin : Duration{}};
}

// Returns the flags of serve; `join` gets the address of a running service.
std::vector<FlagGroup> serve_flags(ServerSettings& settings, std::string& join) {
  std::vector<FlagGroup> flags = settings_flags(settings);
  flags.push_back({"joining a running service",
                   {{"join", &join,
                     "HOST:PORT of any rank of it, for clients: this process joins as a missing "
                     "rank and takes the flags that all ranks share from the service",
                     ""}}});
  return flags;
}

// Fills `settings` from the arguments, and with --join from the service that this rank joins, whose
// flags it adds to `arguments`. Returns false if the command shall not run, as after --help.
Result<bool> read_settings(ServerSettings& settings, Arguments& arguments) {
  std::string join;
  const auto read = [&] {
    settings = {};
    settings.parallel.ep_size = 0;  // not given
    const std::vector<FlagGroup> flags = serve_flags(settings, join);
    return parse_flags({.command = "serve",
                        .about = "start a server with the APIs of OpenAI, Anthropic and SGLang",
                        .groups = flags},
                       arguments);
  };
  HOCKET_TRY(const bool go, read());
  if (!go || join.empty()) return go;
  HOCKET_TRY(arguments, arguments_to_join(join, settings.http, arguments));
  return read();
}

Result<int> serve_model(Arguments arguments) {
  ServerSettings settings;
  HOCKET_TRY(const bool go, read_settings(settings, arguments));
  if (!go) return 0;
  HOCKET_TRY(const log::Level level, log::parse_level(settings.http.log_level));
  log::set_level(level);
  HOCKET_TRY(const log::Format format, log::parse_format(settings.observe.log_format));
  log::set_format(format);
  std::string join;
  warn_of_variables(serve_flags(settings, join));
  HOCKET_TRY(const Launch launch, choose_ranks(settings.parallel));
  HOCKET_TRY_VOID(choose_model(settings));
  HOCKET_TRY_VOID(open_black_box(settings, launch));
  SignalListener signals;
  const log::Writer log_writer;
  std::unique_ptr<ClusterProcess> cluster;  // null: all ranks are in this process
  if (launch.num_ranks > 1 && !launch.in_process) {
    HOCKET_TRY(cluster, ClusterProcess::create(launch, settings, arguments));
  }
  // From here on a signal does not end the process at once: serve_until_signal() handles it.
  const auto loaded = [&] { signals.deliver_to_wait(limits_of_end(settings.http, cluster.get())); };
  HOCKET_TRY(const RunningServer running,
             start_server(settings, cluster.get(), loaded, flags_to_join(settings, launch)));
  log_start(running.model->engine->info(), settings, launch.rank);
  const char* scheme = settings.http.ssl_certfile.empty() ? "http" : "https";
  Readiness readiness(
      fmt::format("{}://{}:{}", scheme, settings.http.host, running.server->port()));
  readiness.update(*running.model->engine);
  const auto poll = [&]() -> Result<void> {
    readiness.update(*running.model->engine);
    return cluster ? cluster->watch() : Result<void>{};
  };
  const auto on_signal = [&](int number) {
    notify_service_manager("STOPPING=1");
    if (cluster) cluster->forward_signal(number);
  };
  return serve_until_signal(
      *running.server, signals, settings.http.shutdown_timeout_s,
      {.poll = poll, .on_signal = on_signal, .others = cluster ? cluster->patience() : Duration{}});
}

}  // namespace

int serve(const Arguments& arguments) {
  const Result<int> done = serve_model(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
