#include "apps/running_server.h"

namespace hocket {

Result<RunningServer> start_server(const ServerSettings& settings) {
  RunningServer running;
  HOCKET_TRY(LoadedModel model, load_model(settings));
  running.model = std::make_unique<LoadedModel>(std::move(model));
  running.generator = std::make_unique<EngineGenerator>(*running.model->engine);
  const auto& tokenizer = running.model->tokenizer;
  const auto& chat_template = running.model->chat_template;
  HOCKET_TRY(running.server,
             Server::create({.settings = settings,
                             .generator = running.generator.get(),
                             .tokenizer = tokenizer ? &*tokenizer : nullptr,
                             .chat_template = chat_template ? &*chat_template : nullptr}));
  return running;
}

}  // namespace hocket
