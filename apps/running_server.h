// Model, engine and server in this process: what serve, demo and bench serving start.
#pragma once

#include <functional>
#include <memory>

#include "apps/loaded_model.h"
#include "server/server.h"

namespace hocket {

// Members end in the reverse of their order: first the server, last the model.
struct RunningServer {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<EngineGenerator> generator;
  std::unique_ptr<Server> server;
};

// Loads settings.model (choose_model() has named it) and listens on settings.http; port 0: any free
// one. `cluster`: see load_model. `loaded` is called when the model is there, before anybody can
// connect. Errors: those of load_model and Server::create.
Result<RunningServer> start_server(const ServerSettings& settings,
                                   ClusterProcess* cluster = nullptr,
                                   const std::function<void()>& loaded = {});

}  // namespace hocket
