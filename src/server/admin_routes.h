// Paths that only admins may use: settings of the log, the role, profiles, the cache, records of
// experts, events of the prefix cache. rank_change_routes.h has those of ranks that leave and join.
#pragma once

#include <vector>

#include "core/server_settings.h"
#include "engine/engine.h"
#include "server/observe/observer.h"
#include "server/ranks/rank_router.h"
#include "server/reports/kv_event_feed.h"
#include "server/routes.h"

namespace hocket {

// All pointers are borrowed and outlive the routes.
struct AdminOptions {
  const ServerSettings* settings = nullptr;
  Engine* engine = nullptr;
  Observer* observer = nullptr;
  RankRouter* rank_router = nullptr;  // null: all ranks are in this process
};
void add_admin_routes(std::vector<Route>& routes, const AdminOptions& options);

// Adds /kv_events, which is for admins, since its events show the tokens of all clients' prompts.
// `kv_events` is borrowed; null: not offered.
void add_kv_event_route(std::vector<Route>& routes, KvEventFeed* kv_events);

// Merges the answers of all ranks to /start_profile or /stop_profile: all files, and the ranks that
// failed.
Result<Json> merge_profiles(Json here, const std::vector<PeerAnswer>& there);
// The same for /disaggregation_mode. Errors: lost_rank, naming the ranks that have another mode.
Result<Json> merge_modes(Json here, const std::vector<PeerAnswer>& there);

}  // namespace hocket
