#include "server/admin_routes.h"

#include <utility>

#include "server/access/request_sender.h"
#include "server/disaggregation_fields.h"
#include "server/http/error_map.h"
#include "server/ranks/role_sender.h"
#include "server/reports/expert_distribution.h"
#include "server/reports/profile.h"

namespace hocket {
namespace {

using Exchange = std::shared_ptr<HttpExchange>;

// Adds to this rank's answer the ranks that refused the settings.
Result<Json> merge_settings(Json here, const std::vector<PeerAnswer>& there) {
  for (const PeerAnswer& peer : there)
    if (peer.status != 200) here["failed"].push_back(error_text(peer));
  return here;
}

Result<Json> merge_flushes(Json here, const std::vector<PeerAnswer>& there) {
  const std::string complaints =
      error_texts(there, [](const PeerAnswer& peer) { return peer.status != 200; });
  if (complaints.empty()) return here;
  return fail(
      error(ErrorCode::invalid_request, "not all ranks have flushed their caches: {}", complaints)
          .with_fix("try again when /get_load says num_reqs 0 for all ranks"));
}

Result<Json> configure_logging(Observer& observer, std::string_view body) {
  HOCKET_TRY(const Json json, parse_json_object(body));
  return observer.configure(json);
}

Result<Json> flush_cache(const AdminOptions& options) {
  if (options.engine->flush_cache()) {
    if (options.rank_router != nullptr) options.rank_router->forget_prefixes();
    return Json{{"flushed", true}};
  }
  return fail(error(ErrorCode::invalid_request,
                    "the cache is in use: requests run or wait, or the engine does not answer")
                  .with_fix("try again when /get_load says num_reqs 0"));
}

// The other ranks write files with the same id.
void start_profile_everywhere(const AdminOptions& options, const HttpRequest& request,
                              const Exchange& exchange) {
  auto begun = start_profile(*options.engine->parts().profiler,
                             options.settings->observe.admin_folder, request.body);
  if (!begun) return respond_json(*exchange, std::unexpected(std::move(begun).error()));
  HttpRequest others = request;
  others.body = std::move(begun->others);
  answer_everywhere(peers_of(options.rank_router), others, exchange, std::move(begun->answer),
                    merge_profiles);
}

// The other ranks get the number of the change, so that it replaces no later one.
void change_mode_everywhere(const AdminOptions& options, const HttpRequest& request,
                            const Exchange& exchange) {
  PrefillRole* const role = options.engine->parts().role;
  if (is_from_rank(request))
    return respond_json(*exchange, take_disaggregation_mode(request.body, role));
  auto here = change_disaggregation_mode(request.body, role);
  if (!here || request.body.empty()) return respond_json(*exchange, here);
  HttpRequest others = request;
  others.body = role_change_body(role->last_change());
  answer_everywhere(peers_of(options.rank_router), others, exchange, std::move(here), merge_modes);
}

void add_listener(KvEventFeed* kv_events, const Exchange& exchange) {
  if (kv_events == nullptr)
    respond_error(*exchange,
                  error(ErrorCode::not_found, "events of the prefix cache are not recorded")
                      .with_fix("start the server with --kv-events"));
  else if (const auto added = kv_events->add(exchange); !added)
    respond_error(*exchange, added.error());
}

}  // namespace

Result<Json> merge_profiles(Json here, const std::vector<PeerAnswer>& there) {
  for (const PeerAnswer& peer : there) {
    const Json theirs = parse_bounded_json(peer.body);
    if (peer.status == 200 && theirs.is_object() && theirs.contains("files"))
      for (const Json& file : theirs["files"]) here["files"].push_back(file);
    else
      here["failed"].push_back(error_text(peer));
  }
  return here;
}

Result<Json> merge_modes(Json here, const std::vector<PeerAnswer>& there) {
  // A rank that is away is told the mode when it joins (RoleSender).
  const std::string complaints = error_texts(
      there, [](const PeerAnswer& peer) { return peer.is_member && peer.status != 200; });
  if (complaints.empty()) return here;
  return fail(error(ErrorCode::lost_rank,
                    "this rank has the mode {}, and not all others have taken it: {}",
                    here.value("disaggregation_mode", ""), complaints)
                  .with_fix("they are sent it again each second: see in the log who refuses it"));
}

void add_admin_routes(std::vector<Route>& routes, const AdminOptions& options) {
  const auto admin = [&](std::string_view methods, std::string_view path, auto handle) {
    routes.push_back(
        {methods, path, HandlerThread::control,
         [handle](const HttpRequest& r, const Exchange& e, TimePoint) { handle(r, e); },
         Access::admin});
  };
  const auto experts = [&](std::string_view path, auto answer) {
    admin("GET, POST", path,
          [answer](const HttpRequest& r, const Exchange& e) { respond_json(*e, answer(r)); });
  };
  admin("POST", "/configure_logging", [options](const HttpRequest& r, const Exchange& e) {
    answer_everywhere(peers_of(options.rank_router), r, e,
                      configure_logging(*options.observer, r.body), merge_settings);
  });
  admin("GET, POST", "/disaggregation_mode", [options](const HttpRequest& r, const Exchange& e) {
    change_mode_everywhere(options, r, e);
  });
  admin("GET, POST", "/start_profile", [options](const HttpRequest& r, const Exchange& e) {
    start_profile_everywhere(options, r, e);
  });
  admin("GET, POST", "/stop_profile", [options](const HttpRequest& r, const Exchange& e) {
    answer_everywhere(peers_of(options.rank_router), r, e,
                      stop_profile(*options.engine->parts().profiler), merge_profiles);
  });
  admin("GET, POST", "/flush_cache", [options](const HttpRequest& r, const Exchange& e) {
    answer_everywhere(peers_of(options.rank_router), r, e, flush_cache(options), merge_flushes);
  });
  experts("/start_expert_distribution_record", [engine = options.engine](const HttpRequest& r) {
    return start_expert_record(engine->parts().expert_stats, r.body);
  });
  experts("/stop_expert_distribution_record", [engine = options.engine](const HttpRequest&) {
    return stop_expert_record(engine->parts().expert_stats);
  });
  experts("/dump_expert_distribution_record", [engine = options.engine](const HttpRequest&) {
    return dump_expert_record(engine->parts().expert_stats);
  });
}

void add_kv_event_route(std::vector<Route>& routes, KvEventFeed* kv_events) {
  routes.push_back({"GET", "/kv_events", HandlerThread::http,
                    [kv_events](const HttpRequest&, const Exchange& exchange, TimePoint) {
                      add_listener(kv_events, exchange);
                    },
                    Access::admin});
}

}  // namespace hocket
