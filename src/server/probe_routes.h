// The probes /livez, /readyz and /health, open to every client.   Thread: http.
#pragma once

#include <vector>

#include "engine/engine.h"
#include "server/health_and_watchdog.h"
#include "server/routes.h"

namespace hocket {

// Both are borrowed and outlive the routes.
void add_probe_routes(std::vector<Route>& routes, const Engine* engine, const Health* health);

}  // namespace hocket
