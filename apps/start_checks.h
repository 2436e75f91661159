// Checks at the start of a server. They log the settings that the server changed by itself and what
// makes it slower or less safe than it could be; with --strict any of these is an error.
// Thread: the main one.
#pragma once

#include <optional>
#include <vector>

#include "base/result.h"
#include "core/server_settings.h"
#include "engine/plan/engine_info.h"

namespace hocket {

struct StartReport {
  std::vector<SettingChange> changes;  // without those that the engine made
  std::vector<SlowPath> slow_paths;
};

// Raises the limit of open files so that each connection can have one, or lowers
// http.max_connections to what the limit allows; returns the change. Called before loading.
// Errors: bad_value, if the limit leaves no file for even one client beside the probes'
// connections.
Result<std::vector<SettingChange>> fit_connections(HttpSettings& http, int num_ranks);
// A warning if other machines can reach the port and the server asks for no key, since every client
// is an admin then. May block for as long as the resolver of names does.
std::optional<SlowPath> open_to_all(const HttpSettings& http);
// Returns all slow paths of this machine, this build and these settings.
std::vector<SlowPath> find_slow_paths(const EngineInfo& info, const ServerSettings& settings);
// Logs the report; load_model() has logged the engine's changes already. Errors, with
// settings.strict: bad_value, which lists the report and the engine's changes.
Result<void> report_or_refuse(const EngineInfo& info, const StartReport& report,
                              const ServerSettings& settings);

}  // namespace hocket
