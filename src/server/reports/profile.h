// Handles /start_profile and /stop_profile, as SGLang's: writes the next steps of all ranks to
// files for Perfetto, chrome://tracing and `hocket trace`.   Thread: any.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/stats/profiler.h"
#include "server/http/json_body.h"

namespace hocket {

struct ProfileRequest {
  Profiler::Start start;             // without its folder
  std::string folder;                // name of a folder below --admin-folder
  std::vector<std::string> ignored;  // names of ignored fields
};
// Errors: as json_body.h.
Result<ProfileRequest> parse_start_profile(const Json& json);

struct StartedProfile {
  Json answer;         // {"profiling", "files", "num_steps", "ignored"}
  std::string others;  // the body for other ranks, so that all files have the same id
};
// admin_root: the value of --admin-folder. Errors: those of Profiler and of admin_folder(); for a
// body, as json_body.h.
Result<StartedProfile> start_profile(Profiler& profiler, const std::string& admin_root,
                                     std::string_view body);
// Waits until the file is written, a fraction of a second.
Result<Json> stop_profile(Profiler& profiler);

}  // namespace hocket
