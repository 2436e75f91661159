// What a server finds out about its start, tells, and with --strict refuses: settings that it
// changes by itself, and what makes it slower or less safe than it could be.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "core/server_settings.h"
#include "engine/engine_info.h"

namespace hocket {

struct StartReport {
  std::vector<SettingChange> changes;  // besides the engine's
  std::vector<SlowPath> slow_paths;
};

// Before anything is loaded: lets this process open a file for each connection, or lowers
// http.max_connections to what it may. Errors: bad_value, not even one client would have room
// beside the connections that are kept for probes.
Result<std::vector<SettingChange>> fit_connections(HttpSettings& http, int num_ranks);
// A warning if other machines can reach the port and the server asks for no key: every client is an
// admin then. May block for as long as the resolver does.
std::optional<SlowPath> open_to_all(const HttpSettings& http);
// Of this machine, this build and these settings.
std::vector<SlowPath> find_slow_paths(const EngineInfo& info, const ServerSettings& settings);
// Tells of it in the log; load_model has told of the engine's changes. Errors, with
// settings.strict: bad_value with everything that was found.
Result<void> tell_or_refuse(const EngineInfo& info, const StartReport& report,
                            const ServerSettings& settings);

}  // namespace hocket
