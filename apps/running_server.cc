#include "apps/running_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>

#include "apps/start_checks.h"

namespace hocket {

Result<RunningServer> start_server(const ServerSettings& settings, ClusterProcess* cluster,
                                   const std::function<void()>& loaded, JoinFlags join) {
  RunningServer running;
  ServerSettings effective = settings;
  StartReport report;
  HOCKET_TRY(report.changes, fit_connections(effective.http, settings.parallel.ep_size));
  HOCKET_TRY(LoadedModel model, load_model(settings, cluster));
  if (loaded) loaded();
  const EngineInfo& info = model.engine->info();
  report.slow_paths = find_slow_paths(info, settings);
  if (model.tokenizer && !model.tokenizer->slow_pattern().empty())
    report.slow_paths.push_back(
        {"tokenizer.json",
         fmt::format("its pattern {} takes quadratic time on some texts; texts that take too "
                     "long are refused",
                     model.tokenizer->slow_pattern()),
         "ask the model's publisher for a pattern that takes linear time"});
  HOCKET_TRY_VOID(report_or_refuse(info, report, settings));
  if (cluster != nullptr && cluster->open_to_strangers())  // ClusterProcess has logged this path
    report.slow_paths.push_back(*cluster->open_to_strangers());
  running.model = std::make_unique<LoadedModel>(std::move(model));
  const auto& tokenizer = running.model->tokenizer;
  const auto& chat_template = running.model->chat_template;
  Server::Options options{.settings = effective,
                          .engine = running.model->engine.get(),
                          .tokenizer = tokenizer ? &*tokenizer : nullptr,
                          .chat_template = chat_template ? &*chat_template : nullptr};
  options.changes = report.changes;
  options.slow_paths = report.slow_paths;
  if (cluster != nullptr) {
    options.join = std::move(join);
    options.leave = [] { kill(getpid(), SIGTERM); };
    options.internal_host = running.model->engine->parts().cluster->local_host();
  }
  HOCKET_TRY(running.server, Server::create(std::move(options)));
  return running;
}

}  // namespace hocket
