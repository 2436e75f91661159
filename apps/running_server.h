// Starts model, engine and server in this process, for serve, demo and bench serving.
#pragma once

#include <functional>
#include <memory>

#include "apps/loaded_model.h"
#include "server/server.h"

namespace hocket {

// Members are destroyed in reverse order: first the server, last the model.
struct RunningServer {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<Server> server;
};

// Loads settings.model (choose_model() has set its path) and listens on settings.http; port 0 takes
// any free one. `cluster`: see load_model. `loaded` is called when the model is loaded, before the
// port opens. `join`: see Server::Options. Errors: those of fit_connections, load_model,
// report_or_refuse and Server::create.
Result<RunningServer> start_server(const ServerSettings& settings,
                                   ClusterProcess* cluster = nullptr,
                                   const std::function<void()>& loaded = {}, JoinFlags join = {});

}  // namespace hocket
