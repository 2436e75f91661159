#include "server/probe_routes.h"

#include "server/http/error_map.h"

namespace hocket {

void add_probe_routes(std::vector<Route>& routes, const Engine* engine, const Health* health) {
  using Exchange = std::shared_ptr<HttpExchange>;
  const auto probe = [&](std::string_view path, auto check) {
    routes.push_back({"GET", path, HandlerThread::http,
                      [check](const HttpRequest&, const Exchange& exchange, TimePoint) {
                        if (const Result<void> well = check(); !well)
                          respond_error(*exchange, well.error());
                        else
                          exchange->respond(200, kJsonType, R"({"status":"ok"})");
                      },
                      Access::open});
  };
  // A service may be ready while ranks are missing; the answer then says which.
  routes.push_back({"GET", "/readyz", HandlerThread::http,
                    [engine, health](const HttpRequest&, const Exchange& exchange, TimePoint) {
                      const EngineStats stats = engine->stats();
                      if (const auto well = health->ready(stats); !well) {
                        respond_error(*exchange, well.error());
                        return;
                      }
                      Json body = {{"status", "ok"}};
                      if (!stats.missing_ranks.empty()) body["ranks"] = stats.missing_ranks;
                      exchange->respond(200, kJsonType, body.dump());
                    },
                    Access::open});
  probe("/livez", [] { return Result<void>(); });
  for (const char* path : {"/health", "/health_generate"})
    probe(path, [engine, health] { return health->healthy(engine->stats()); });
}

}  // namespace hocket
