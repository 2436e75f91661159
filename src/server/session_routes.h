// Paths for conversations by name: /sessions/NAME/save, restore and delete, and the slots of
// llama.cpp's API, where slot N is the session "slot N" and a file is a name among its client's
// own. With ranks in several processes any of them may be asked: a save is carried out by the rank
// that knows most of the session, a restore by one that finds what was saved, this one first, and
// a delete by all. Thread: session*, and find* for the questions of other ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/server_settings.h"
#include "engine/engine.h"
#include "server/routes.h"

namespace hocket {

class RankRouter;

// Returns the principal that has prefixes and sessions of its own; empty: those that all share.
// Counts of cached tokens would show one client how another client's prompts begin.
std::string cache_owner_of(const HttpRequest& request, const HttpSettings& settings);

// Returns the key under which requests for the session in the path run one after the other
// (TaskPool::push()); 0: it names none. A name of saved ones in the body is not looked at.
uint64_t session_task_key(const HttpRequest& request, const HttpSettings& settings);

// All outlive the routes. ranks: null: all ranks are in this process.
void add_session_routes(std::vector<Route>& routes, Engine& engine, const HttpSettings& settings,
                        RankRouter* ranks);

}  // namespace hocket
