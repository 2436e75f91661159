#include "server/reports/profile.h"

#include <algorithm>
#include <array>

#include "server/access/admin_folder.h"

namespace hocket {
namespace {

// Fields that control torch's profiler. They are ignored here.
constexpr std::array<std::string_view, 8> kForTorch = {
    "activities",     "with_stack",     "record_shapes",  "profile_by_stage",
    "merge_profiles", "profile_prefix", "profile_stages", "profile_memory"};

Json json_of(const Profiler::Status& status) {
  Json out = {{"profiling", status.running}, {"files", Json::array({status.file})}};
  if (!status.running) out["num_steps"] = status.num_steps;
  return out;
}

}  // namespace

Result<ProfileRequest> parse_start_profile(const Json& json) {
  ProfileRequest asked;
  Profiler::Start& start = asked.start;
  Fields fields(json);
  fields.read("output_dir", asked.folder);
  fields.read("num_steps", start.num_steps, 1, Profiler::kMaxSteps);
  uint64_t start_step = 0;
  if (fields.read("start_step", start_step, 0, int64_t{1} << 53)) start.start_step = start_step;
  if (fields.read("profile_id", start.id) && !start.id.empty() && !is_plain_name(start.id))
    fields.fail_field("profile_id",
                      fmt::format("profile_id names files: up to {} letters, digits, '-', '_' and "
                                  "'.', which does not come first",
                                  kMaxPlainName));
  for (const std::string_view name : kForTorch)
    if (const Json* value = fields.get(name); value != nullptr && *value != false)
      asked.ignored.emplace_back(name);
  return fields.finish_with(std::move(asked));
}

Result<StartedProfile> start_profile(Profiler& profiler, const std::string& admin_root,
                                     std::string_view body) {
  Json json = Json::object();
  if (!body.empty()) {
    HOCKET_TRY(json, parse_json_object(body));
  }
  HOCKET_TRY(ProfileRequest asked, parse_start_profile(json));
  HOCKET_TRY(asked.start.dir, admin_folder(admin_root, asked.folder, "output_dir"));
  if (asked.start.id.empty()) asked.start.id = Profiler::fresh_id();
  HOCKET_TRY(const Profiler::Status status, profiler.start(asked.start));
  StartedProfile begun{.answer = json_of(status)};
  begun.answer["num_steps"] =
      asked.start.num_steps > 0 ? Json(asked.start.num_steps) : Json(nullptr);
  if (!asked.ignored.empty()) begun.answer["ignored"] = asked.ignored;
  json["profile_id"] = asked.start.id;
  begun.others = to_text(json);
  return begun;
}

Result<Json> stop_profile(Profiler& profiler) {
  HOCKET_TRY(const Profiler::Status status, profiler.stop());
  return json_of(status);
}

}  // namespace hocket
