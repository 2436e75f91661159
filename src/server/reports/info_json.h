// The JSON in which the server describes itself: /v1/models, /get_model_info, /get_server_info,
// /get_load, /v1/loads.   Thread: any.
#pragma once

#include <span>

#include "cluster/control_plane.h"
#include "core/server_settings.h"
#include "engine/engine.h"
#include "server/generation/generation_request.h"
#include "server/http/json_body.h"

namespace hocket {

// Returns the rank of EngineStats::ranks[0], the first of this process.
inline int first_rank(Engine& engine) {
  const ControlPlane* const cluster = engine.parts().cluster;
  return cluster == nullptr ? 0 : cluster->self().rank;
}

Json model_card(const ServedModel& model, int64_t created);
Json model_info_json(const ServedModel& model, const ServerSettings& settings);
// server_info_json() has the effective settings (never a key), the settings that the server changed
// with the reasons, memory and counters.
Json to_json(const SettingChange& change);
Json to_json(const SlowPath& path);
Json to_json(const ExpertMoveStats& moves);
Json server_info_json(const ServedModel& model, const ServerSettings& settings,
                      const EngineStats& stats);
// Returns the part of server_info that `hocket simulate` needs about the scheduler, for logs of
// requests. Errors: io.
Result<Json> scheduler_json(const Json& server_info);
// Returns one object per data-parallel rank. num_tokens: used and pending; ts_tic: seconds of a
// monotonic clock.
Json load_json(const EngineStats& stats);
// The same for a service of several processes. Rank `own` reports all fields; of the others only
// the numbers that they send with every step are known: requests, and tokens still to compute.
Json load_json(const EngineStats& stats, std::span<const RankLoad> loads, int own);
// Returns /v1/loads for the ranks of this process; the first of them is `first_rank`.
Json loads_json(const EngineStats& stats, const EngineInfo& info, int first_rank);

}  // namespace hocket
