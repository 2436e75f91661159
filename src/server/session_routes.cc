#include "server/session_routes.h"

#include <charconv>
#include <utility>

#include "core/request_bounds.h"
#include "server/access/request_sender.h"
#include "server/generation/generation_request.h"
#include "server/http/error_map.h"
#include "server/http/json_body.h"
#include "server/http/request_target.h"

namespace hocket {
namespace {

constexpr std::string_view kSessionsPath = "/sessions/", kSlotsPath = "/slots/";

double ms_since(TimePoint begin) {
  return to_ms(RealClock().now() - begin);
}

Result<SessionResult> change(Engine& engine, const std::string& owner, SessionAction action,
                             std::string_view session, std::string_view name) {
  return engine.change_session({.action = action,
                                .session = session_key_of(owner, session),
                                .name = session_key_of(owner, name),
                                .owner = session_owner_of(owner)});
}

std::unexpected<Error> unknown_path(std::string_view path) {
  return fail(error(ErrorCode::not_found, "there is no {}", path.substr(0, 128))
                  .with_fix("POST /sessions/NAME/save, restore or delete"));
}

Result<Json> answer_session(Engine& engine, const std::string& owner, const HttpRequest& asked) {
  const std::string_view rest = std::string_view(asked.path).substr(kSessionsPath.size());
  const size_t cut = rest.rfind('/');
  if (cut == rest.npos || cut == 0) return unknown_path(asked.path);
  const std::string_view name = rest.substr(0, cut), verb = rest.substr(cut + 1);
  if (verb != "save" && verb != "restore" && verb != "delete") return unknown_path(asked.path);
  if (cut > kMaxSessionBytes)
    return fail(error(ErrorCode::invalid_request,
                      "the session's name has {} bytes; at most {} are possible", cut,
                      kMaxSessionBytes)
                    .with_fix("use the session_id that its requests have"));
  const auto action = verb == "save"      ? SessionAction::save
                      : verb == "restore" ? SessionAction::restore
                                          : SessionAction::end;
  const TimePoint begin = RealClock().now();
  HOCKET_TRY(const SessionResult done, change(engine, owner, action, name, name));
  Json answer = {{"session_id", name}, {"action", verb}};
  answer["tokens"] = done.tokens;
  answer["ms"] = ms_since(begin);
  return answer;
}

// The fields of llama.cpp's answers.
Result<Json> answer_slot(Engine& engine, const std::string& owner, const HttpRequest& asked) {
  const std::string_view rest = std::string_view(asked.path).substr(kSlotsPath.size());
  int slot = -1;
  const auto [stop, problem] = std::from_chars(rest.data(), rest.data() + rest.size(), slot);
  if (problem != std::errc() || stop != rest.data() + rest.size() || slot < 0)
    return fail(error(ErrorCode::not_found, "there is no {}", asked.path.substr(0, 128))
                    .with_fix("POST /slots/0?action=save, restore or erase"));
  const std::string session = slot_session(slot);
  const std::string_view action = query_value(asked.query, "action");
  const TimePoint begin = RealClock().now();
  if (action == "erase") {
    HOCKET_TRY(const SessionResult done,
               change(engine, owner, SessionAction::end, session, session));
    return Json{{"id_slot", slot}, {"n_erased", done.tokens}};
  }
  if (action != "save" && action != "restore")
    return fail(error(ErrorCode::invalid_request, "action is '{}', not save, restore or erase",
                      action.substr(0, 64))
                    .with_param("action"));
  HOCKET_TRY(const Json body, parse_json_object(asked.body));
  const auto file = body.find("filename");
  if (file == body.end() || !file->is_string() || file->get_ref<const std::string&>().empty() ||
      file->get_ref<const std::string&>().size() > kMaxSessionBytes)
    return fail(error(ErrorCode::invalid_request, "filename must be a string of 1 to {} bytes",
                      kMaxSessionBytes)
                    .with_param("filename"));
  const auto& name = file->get_ref<const std::string&>();
  const bool saves = action == "save";
  HOCKET_TRY(const SessionResult done,
             change(engine, owner, saves ? SessionAction::save : SessionAction::restore, session,
                    "file " + name));
  return Json{{"id_slot", slot},
              {"filename", name},
              {saves ? "n_saved" : "n_restored", done.tokens},
              {saves ? "n_written" : "n_read", done.bytes},
              {"timings", {{saves ? "save_ms" : "restore_ms", ms_since(begin)}}}};
}

}  // namespace

std::string cache_owner_of(const HttpRequest& request, const HttpSettings& settings) {
  const Principal* principal = principal_of(request);
  const bool alone = principal != nullptr && principal->alone;
  return alone && !settings.share_prefixes ? std::string(principal_name(request)) : std::string();
}

void add_session_routes(std::vector<Route>& routes, Engine& engine, const HttpSettings& settings) {
  const auto add = [&](std::string_view path, auto answer) {
    routes.push_back(
        {"POST", path, HandlerThread::session,
         [&engine, &settings, answer](const HttpRequest& r,
                                      const std::shared_ptr<HttpExchange>& exchange, TimePoint) {
           respond_json(*exchange, answer(engine, cache_owner_of(r, settings), r));
         }});
  };
  add(kSessionsPath, answer_session);
  add(kSlotsPath, answer_slot);
}

}  // namespace hocket
