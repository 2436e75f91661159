// What the server tells about itself: /v1/models, /get_model_info, /get_server_info, /get_load,
// /v1/loads. Thread: any.
#pragma once

#include <span>

#include "core/server_settings.h"
#include "engine/engine.h"
#include "server/protocol/generation_request.h"
#include "server/protocol/json_body.h"

namespace hocket {

Json model_card(const ServedModel& model, int64_t created);
Json model_info_json(const ServedModel& model, const ServerSettings& settings);
// Effective settings (never the key), what the server changed by itself and why, memory, counters.
Json to_json(const SettingChange& change);
Json to_json(const SlowPath& path);
Json server_info_json(const ServedModel& model, const ServerSettings& settings,
                      const EngineStats& stats);
// Of that, what `hocket simulate` needs to know of the scheduler; for logs of requests. Errors: io.
Result<Json> scheduler_json(const Json& server_info);
// One object for each data-parallel rank. num_tokens: used and pending; ts_tic: seconds of a clock
// that only goes forward.
Json load_json(const EngineStats& stats);
// The same of a service of several processes: rank `own` says all that, of the others only what
// they tell with every step is known, requests and tokens still to compute.
Json load_json(const EngineStats& stats, std::span<const RankLoad> loads, int own);
// /v1/loads, of the ranks of this process; the first of them is `first_rank`.
Json loads_json(const EngineStats& stats, const EngineInfo& info, int first_rank);

}  // namespace hocket
