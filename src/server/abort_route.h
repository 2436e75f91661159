// POST /abort_request: ends requests, on all ranks.   Thread: control.
#pragma once

#include <vector>

#include "engine/engine.h"
#include "server/ranks/rank_router.h"
#include "server/reply/reply.h"
#include "server/reply/stream_records.h"
#include "server/routes.h"

namespace hocket {

// All pointers are borrowed and outlive the route.
struct AbortOptions {
  Engine* engine = nullptr;
  ReplyService* reply = nullptr;
  StreamRecords* stream_records = nullptr;
  RankRouter* rank_router = nullptr;  // null: all ranks are in this process
};
void add_abort_route(std::vector<Route>& routes, const AbortOptions& options);

}  // namespace hocket
