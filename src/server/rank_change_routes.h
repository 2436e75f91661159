// Paths for ranks that leave a running service and join it. ranks/rank_changes.h decides.
//
//   POST /scale_ranks   ranks leave
//   GET /join_terms     the rank that a process may join as, and the flags that it must have
//
// Thread: control.
#pragma once

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "server/join_flags.h"
#include "server/ranks/rank_router.h"
#include "server/routes.h"

namespace hocket {

// All pointers are borrowed and outlive the routes.
struct RankChangeOptions {
  Engine* engine = nullptr;
  RankRouter* rank_router = nullptr;      // null: all ranks are in this process
  std::function<void()> leave;            // Server::Options::leave
  const JoinFlags* join_flags = nullptr;  // null: no rank can join
};
void add_rank_change_routes(std::vector<Route>& routes, const RankChangeOptions& options);

}  // namespace hocket
