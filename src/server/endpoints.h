// Maps each path to its handler. docs/api.md describes the paths for users.
#pragma once

#include <functional>
#include <vector>

#include "core/server_settings.h"
#include "engine/engine.h"
#include "server/health_and_watchdog.h"
#include "server/join_flags.h"
#include "server/observe/observer.h"
#include "server/ranks/rank_router.h"
#include "server/reply/reply.h"
#include "server/reports/kv_event_feed.h"
#include "server/reports/metrics.h"
#include "server/request_starter.h"
#include "server/responses_endpoints.h"
#include "server/routes.h"
#include "server/stream_endpoints.h"

namespace hocket {

// All pointers in Options are borrowed. The Server owns the object.   Thread: any.
class Endpoints {
 public:
  struct Options {
    const ServerSettings* settings = nullptr;
    ServedModel model;
    Engine* engine = nullptr;
    ReplyService* reply = nullptr;
    Metrics* metrics = nullptr;
    Health* health = nullptr;
    Observer* observer = nullptr;
    const std::vector<SettingChange>* changes = nullptr;  // besides the engine's; null: none
    const std::vector<SlowPath>* slow_paths = nullptr;    // null: none
    KvEventFeed* kv_events = nullptr;                     // null: not offered
    RankRouter* rank_router = nullptr;                    // null: all ranks are in this process
    std::function<void()> leave;                          // Server::Options::leave
    const JoinFlags* join_flags = nullptr;                // null: no rank can join
    ResponseStore* responses = nullptr;
    StreamRecords* stream_records = nullptr;
    std::function<Result<void>(TaskPool::Task&&, uint64_t client)> push_text;
    std::function<HttpCounts()> http_counts;
  };
  explicit Endpoints(Options options);

  // The object must outlive the routes.
  std::vector<Route> routes() const;

 private:
  const Options options_;
  const RequestStarter starter_;
  const StreamEndpoints streams_;
  const ResponsesEndpoints responses_;
};

}  // namespace hocket
