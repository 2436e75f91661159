// Paths for conversations by name: /sessions/NAME/save, restore and delete, and the slots of
// llama.cpp's API, where slot N is the session "slot N" and a file is a name among its client's
// own. Thread: text*.
#pragma once

#include <string>
#include <vector>

#include "core/server_settings.h"
#include "engine/engine.h"
#include "server/routes.h"

namespace hocket {

// Returns the principal that has prefixes and sessions of its own; empty: those that all share.
// Counts of cached tokens would show one client how another client's prompts begin.
std::string cache_owner_of(const HttpRequest& request, const HttpSettings& settings);

// Both outlive the routes.
void add_session_routes(std::vector<Route>& routes, Engine& engine, const HttpSettings& settings);

}  // namespace hocket
