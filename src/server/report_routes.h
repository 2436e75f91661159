// Endpoints that report on the server: models, infos, loads, overlap, speculation, metrics. Thread:
// http.
#pragma once

#include <functional>
#include <vector>

#include "core/server_settings.h"
#include "engine/engine.h"
#include "server/generation/generation_request.h"
#include "server/observe/observer.h"
#include "server/ranks/rank_router.h"
#include "server/reports/metrics.h"
#include "server/routes.h"

namespace hocket {

// All pointers are borrowed and outlive the routes.
struct ReportOptions {
  const ServerSettings* settings = nullptr;
  ServedModel model;
  Engine* engine = nullptr;
  const Metrics* metrics = nullptr;
  const Observer* observer = nullptr;
  const std::vector<SettingChange>* changes = nullptr;  // besides the engine's; null: none
  const std::vector<SlowPath>* slow_paths = nullptr;    // null: none
  const RankRouter* rank_router = nullptr;              // null: all ranks are in this process
  std::function<HttpCounts()> http_counts;
};
// The models count as created now.
void add_report_routes(std::vector<Route>& routes, const ReportOptions& options);

}  // namespace hocket
