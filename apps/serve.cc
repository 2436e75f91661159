// hocket serve: loads a model and answers over HTTP until SIGTERM or SIGINT.
#include "apps/commands.h"
#include "apps/flags.h"
#include "apps/running_server.h"
#include "apps/until_signal.h"
#include "base/log.h"

namespace hocket {
namespace {

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
  log::info("kv: {} tokens in {} pages, {:.2f} GB; weights {:.2f} GB; loaded in {:.2f} s",
            info.max_total_tokens, info.num_pages, static_cast<double>(info.kv_bytes) / 1e9,
            static_cast<double>(info.weight_bytes) / 1e9, info.load_seconds);
  const SchedulerSettings& schedule = settings.scheduler;
  const bool chosen = schedule.overlap_schedule == "auto" && !schedule.disable_overlap_schedule;
  log::info("overlap schedule: {}{}", info.overlap_schedule ? "on" : "off",
            chosen ? " (auto: the model runs on CPUs)" : "");
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
