// hocket serve: loads a model and answers over HTTP until SIGTERM or SIGINT.
#include <fmt/core.h>

#include <string>
#include <vector>

#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/running_server.h"
#include "apps/until_signal.h"
#include "base/log.h"

namespace hocket {
namespace {

// "0-3,8".
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

void tell_ranks(const EngineInfo& info, const std::string& routing) {
  log::info("ranks: {} over {}, {} combine groups, routing {}", info.num_ranks, info.network,
            info.combine_groups, routing);
  for (size_t i = 0; i < info.ranks.size(); ++i) {
    const RankInfo& rank = info.ranks[i];
    log::info("rank {}: cores {}, {} threads; experts {}; {} KV tokens; weights {:.2f} GB", i,
              rank.cpus.empty() ? "any" : show_list(rank.cpus), rank.num_workers,
              show_list(rank.experts), rank.max_total_tokens,
              static_cast<double>(rank.weight_bytes) / 1e9);
  }
}

Result<int> serve_model(const Arguments& arguments) {
  ServerSettings settings;
  HOCKET_TRY(const bool go, parse_flags({.command = "serve",
                                         .about = "OpenAI-compatible server",
                                         .groups = settings_flags(settings)},
                                        arguments));
  if (!go) return 0;
  HOCKET_TRY(const log::Level level, log::parse_level(settings.http.log_level));
  log::set_level(level);
  HOCKET_TRY_VOID(choose_model(settings));
  const SignalGuard signals;
  HOCKET_TRY(const RunningServer running, start_server(settings));
  const EngineInfo& info = running.model->engine->info();
  log::info("machine: {}", describe(inspect_machine()));
  log::info("form: {}", form_of(info));
  if (info.num_ranks > 1) tell_ranks(info, settings.parallel.dp_routing);
  log::info("kv: {} tokens in {} pages, {:.2f} GB; weights {:.2f} GB; loaded in {:.2f} s",
            info.max_total_tokens, info.num_pages, static_cast<double>(info.kv_bytes) / 1e9,
            static_cast<double>(info.weight_bytes) / 1e9, info.load_seconds);
  const SchedulerSettings& schedule = settings.scheduler;
  const bool chosen = schedule.overlap_schedule == "auto" && !schedule.disable_overlap_schedule;
  log::info("overlap schedule: {}{}", info.overlap_schedule ? "on" : "off",
            !chosen              ? ""
            : info.num_ranks > 1 ? " (auto: ranks agree on each step)"
                                 : " (auto: the model runs on CPUs)");
  log::info("ready: http://{}:{} serving {}", settings.http.host, running.server->port(),
            info.served_model_name);
  return serve_until_signal(*running.server, signals, settings.http.shutdown_timeout_s);
}

}  // namespace

int serve(const Arguments& arguments) {
  const Result<int> done = serve_model(arguments);
  return done ? *done : report(done.error());
}

}  // namespace hocket
