// The page, and the paths that only it reads: texts under way, the newest steps, the experts.
#pragma once

#include <vector>

#include "engine/engine.h"
#include "server/health_and_watchdog.h"
#include "server/reply/reply.h"
#include "server/routes.h"

namespace hocket {

// All pointers are borrowed and outlive the routes.
struct PageOptions {
  Engine* engine = nullptr;
  const ReplyService* reply = nullptr;
  const Health* health = nullptr;
};
void add_page_routes(std::vector<Route>& routes, const PageOptions& options);

}  // namespace hocket
