#include "server/report_routes.h"

#include <chrono>
#include <utility>

#include "server/disaggregation_fields.h"
#include "server/http/error_map.h"
#include "server/reports/info_json.h"
#include "server/reports/overlap_view.h"
#include "server/reports/speculation_view.h"

namespace hocket {
namespace {

constexpr std::string_view kModelsPath = "/v1/models/";

Result<Json> model_named(const ServedModel& model, std::string_view path, int64_t created) {
  const std::string_view name = path.substr(kModelsPath.size());
  if (name == model.info->served_model_name) return model_card(model, created);
  return fail(error(ErrorCode::not_found, "there is no model '{}'", name.substr(0, 128))
                  .with_fix(fmt::format("'{}' is served", model.info->served_model_name))
                  .with_param("model"));
}

Json load(const ReportOptions& options) {
  const EngineStats stats = options.engine->stats();
  if (options.rank_router == nullptr) return load_json(stats);
  return load_json(stats, options.engine->loads(), options.rank_router->rank());
}

Json server_info(const ReportOptions& options) {
  Json info = server_info_json(options.model, *options.settings, options.engine->stats());
  if (options.changes != nullptr)
    for (const SettingChange& change : *options.changes) info["changes"].push_back(to_json(change));
  if (PrefillRole* role = options.engine->parts().role)
    info["disaggregation"] = change_disaggregation_mode("", role).value_or(Json());
  info["slow_paths"] = Json::array();
  if (options.slow_paths != nullptr)
    for (const SlowPath& path : *options.slow_paths) info["slow_paths"].push_back(to_json(path));
  if (options.rank_router == nullptr) return info;
  info.update(options.rank_router->describe());
  for (Json& rank : info["ranks"]) rank["dp_rank"] = options.rank_router->rank();
  return info;
}

std::string metrics_text(const ReportOptions& options) {
  ClusterCounts cluster;
  if (options.rank_router != nullptr) cluster = options.rank_router->counts();
  return options.metrics->render(options.engine->stats(), options.http_counts(),
                                 options.observer->counts(),
                                 options.rank_router != nullptr ? &cluster : nullptr);
}

}  // namespace

void add_report_routes(std::vector<Route>& routes, const ReportOptions& options) {
  using Exchange = std::shared_ptr<HttpExchange>;
  const auto json = [&](std::string_view path, const auto& answer) {
    routes.push_back({"GET", path, HandlerThread::http,
                      [answer](const HttpRequest& r, const Exchange& e, TimePoint) {
                        respond_json(*e, answer(r));
                      }});
  };
  const int64_t created = unix_seconds();
  json("/v1/models", [options, created](const HttpRequest&) {
    return Json{{"object", "list"}, {"data", Json::array({model_card(options.model, created)})}};
  });
  json(kModelsPath, [options, created](const HttpRequest& r) {
    return model_named(options.model, r.path, created);
  });
  for (const char* path : {"/get_model_info", "/model_info"})
    json(path, [options](const HttpRequest&) {
      return model_info_json(options.model, *options.settings);
    });
  for (const char* path : {"/get_server_info", "/server_info"})
    json(path, [options](const HttpRequest&) { return server_info(options); });
  json("/v1/loads", [options](const HttpRequest&) {
    return loads_json(options.engine->stats(), *options.model.info, first_rank(*options.engine));
  });
  json("/get_load", [options](const HttpRequest&) { return load(options); });
  json("/overlap",
       [options](const HttpRequest&) { return overlap_json(options.engine->overlap()); });
  json("/speculation",
       [options](const HttpRequest&) { return speculation_json(options.engine->speculation()); });
  routes.push_back({"GET", "/metrics", HandlerThread::http,
                    [options](const HttpRequest&, const Exchange& exchange, TimePoint) {
                      exchange->respond(200, kMetricsContentType, metrics_text(options));
                    }});
}

}  // namespace hocket
