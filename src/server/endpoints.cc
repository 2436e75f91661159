#include "server/endpoints.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/queue_limits.h"
#include "server/access/client_key.h"
#include "server/apis/apis.h"
#include "server/apis/responses/responses_api.h"
#include "server/apis/sglang/generate_request.h"
#include "server/disaggregation_fields.h"
#include "server/http/error_map.h"
#include "server/ranks/keeper_paths.h"
#include "server/reports/expert_distribution.h"
#include "server/reports/info_json.h"
#include "server/reports/overlap_view.h"
#include "server/reports/profile.h"
#include "server/reports/speculation_view.h"
#include "server/session_routes.h"
#include "server/text_routes.h"
#include "server/usage/request_meter.h"

namespace hocket {
namespace {

constexpr std::string_view kModelsPath = "/v1/models/";

void respond_json(HttpExchange& exchange, const Result<Json>& answer) {
  if (answer)
    exchange.respond(200, kJsonType, to_text(*answer));
  else
    respond_error(exchange, answer.error());
}

Result<Json> merge_aborts(Json here, const std::vector<PeerAnswer>& there) {
  auto total = here["aborted"].get<size_t>();
  for (const PeerAnswer& peer : there) {
    Json theirs = parse_bounded_json(peer.body);
    if (peer.status == 200 && theirs.is_object() && theirs["aborted"].is_number_unsigned())
      total += theirs["aborted"].get<size_t>();
    else
      here["failed"].push_back(error_text(peer));
  }
  here["aborted"] = total;
  return here;
}

// Adds to this rank's answer the ranks that refused the settings.
Result<Json> merge_settings(Json here, const std::vector<PeerAnswer>& there) {
  for (const PeerAnswer& peer : there)
    if (peer.status != 200) here["failed"].push_back(error_text(peer));
  return here;
}

Result<Json> merge_flushes(Json here, const std::vector<PeerAnswer>& there) {
  std::string complaints;
  for (const PeerAnswer& peer : there)
    if (peer.status != 200) complaints += (complaints.empty() ? "" : "; ") + error_text(peer);
  if (complaints.empty()) return here;
  return fail(
      error(ErrorCode::invalid_request, "not all ranks have flushed their caches: {}", complaints)
          .with_fix("try again when /get_load says num_reqs 0 for all ranks"));
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

Endpoints::Endpoints(Options options)
    : options_(std::move(options)),
      streams_({.reply = options_.reply,
                .stream_records = options_.stream_records,
                .rank_router = options_.rank_router,
                .push = options_.push_text,
                .resume_stream =
                    [this](const HttpRequest& r, const Exchange& e, RecordedRequest recorded,
                           StreamPosition position, TimePoint arrived) {
                      resume_stream(r, e, std::move(recorded), std::move(position), arrived);
                    }}),
      responses_({.model = options_.model,
                  .reply = options_.reply,
                  .rank_router = options_.rank_router,
                  .store = options_.responses,
                  .streams = &streams_,
                  .create = [this](const HttpRequest& r, const Exchange& e,
                                   TimePoint arrived) { generate(kResponsesApi, r, e, arrived); }}),
      created_(unix_seconds()) {}

Result<PreparedRequest> Endpoints::prepare(const Api& api, const HttpRequest& request,
                                           std::optional<AnswerIdentity> given) const {
  HeldBytes held(request.memory);
  HOCKET_TRY(const Json json, parse_json_object(request.body, held, api.num_copies));
  RequestContext context = responses_.context_of(request);
  context.held = &held;
  if (given) context.answer_id = given->id;
  HOCKET_TRY(GenerationRequest asked, api.parse(json, options_.model, context));
  return prepare_request(std::move(asked), options_.model, request.memory, std::move(given));
}

Result<void> Endpoints::add_client_facts(PreparedRequest& prepared, const HttpRequest& request,
                                         TimePoint arrived) const {
  HOCKET_TRY_VOID(apply_disaggregation_fields(
      prepared, {.peers = options_.settings->peers,
                 .role = options_.engine->parts().role,
                 .num_prefill_tokens = num_prefill_tokens(options_.engine->info().model),
                 .reached_at = request.from_rank ? "" : request.header("host")}));
  prepared.received = arrived;
  prepared.event_ids = prepared.request.api->format().style() == StreamStyle::named ||
                       request.header(kEventIdsHeader) == "true";
  GenerationRequest& asked = prepared.request;
  asked.client = request.from_rank ? client_from_rank(request) : client_key(request, asked.user);
  asked.who = request.who();
  asked.cache_owner = cache_owner_of(request, options_.settings->http);
  asked.meter = request.meter;
  asked.memory = request.memory;
  if (const auto key = request.header("x-smg-routing-key"); !key.empty()) asked.routing_key = key;
  return {};
}

void Endpoints::generate(const Api& api, const HttpRequest& request, const Exchange& exchange,
                         TimePoint arrived) {
  if (!request.from_rank && !request.header(kLastEventHeader).empty())
    return streams_.resume(request, exchange, "", arrived);
  // If ranks run in other processes, this check finds a lost rank before any work and any call.
  const bool serves = options_.rank_router == nullptr || options_.rank_router->serves();
  auto ready = serves ? options_.health->ready() : options_.health->ready(options_.engine->stats());
  const auto recorder = options_.observer->begin(request, arrived);
  const auto refuse = [&](const Error& why) {
    if (recorder) recorder->failed(why);
    respond_error(*exchange, why);
  };
  if (!ready) return refuse(ready.error());
  std::optional<AnswerIdentity> given;
  if (request.from_rank) given = read_identity(request.header(kAnswerHeader));
  const bool sends_progress = given.has_value();
  auto prepared = prepare(api, request, std::move(given));
  if (!prepared) return refuse(prepared.error());
  prepared->sends_progress = sends_progress;
  if (auto done = add_client_facts(*prepared, request, arrived); !done) return refuse(done.error());
  const GenerationRequest& asked = prepared->request;
  if (asked.meter != nullptr)
    for (const auto& prompt : prepared->prompts) asked.meter->take_tokens(std::ssize(prompt));
  if (recorder) recorder->began(*prepared);
  // A conversation that continues from an earlier answer stays on this rank, which keeps that
  // answer.
  const bool stays = asked.responses != nullptr && asked.responses->continues;
  if (options_.rank_router != nullptr && !request.from_rank && !stays)
    return options_.rank_router->begin(request, exchange, *std::move(prepared), recorder);
  prepared->stream_record = options_.stream_records->add(request, *prepared);
  if (options_.rank_router != nullptr && !stays)
    return options_.rank_router->keeper().begin(exchange, *std::move(prepared), recorder,
                                                rank_in_via(request.header(kViaHeader)));
  options_.reply->begin(exchange, *std::move(prepared), recorder);
}

Result<Json> Endpoints::model_named(std::string_view path) const {
  const std::string_view name = path.substr(kModelsPath.size());
  if (name == options_.model.info->served_model_name) return model_card(options_.model, created_);
  return fail(error(ErrorCode::not_found, "there is no model '{}'", name.substr(0, 128))
                  .with_fix(fmt::format("'{}' is served", options_.model.info->served_model_name))
                  .with_param("model"));
}

// An admin may end any request, other clients only their own.
Result<Json> Endpoints::abort(const HttpRequest& asked) {
  HOCKET_TRY(const Json json, parse_json_object(asked.body));
  HOCKET_TRY(const AbortBody request, parse_abort(json));
  const bool is_admin = asked.principal == nullptr || asked.principal->role == Role::admin;
  size_t aborted = 0;
  if (request.all) {
    if (!is_admin)
      return fail(error(ErrorCode::forbidden,
                        "abort_all is for an admin's key, and {}'s is a user's", asked.who())
                      .with_fix("{\"rid\": ...} ends one of your own requests")
                      .with_param("abort_all"));
    aborted = options_.reply->num_live();
    options_.engine->abort_all();
  } else {
    const std::string_view who = is_admin ? std::string_view() : asked.who();
    options_.stream_records->erase(request.rid, who);
    aborted = options_.reply->abort(request.rid, who);
  }
  return Json{{"aborted", aborted}};
}

Result<Json> Endpoints::configure_logging(std::string_view body) {
  HOCKET_TRY(const Json json, parse_json_object(body));
  return options_.observer->configure(json);
}

Result<Json> Endpoints::flush_cache() {
  if (options_.engine->flush_cache()) {
    if (options_.rank_router != nullptr) options_.rank_router->forget_prefixes();
    return Json{{"flushed", true}};
  }
  return fail(error(ErrorCode::invalid_request,
                    "the cache is in use: requests run or wait, or the engine does not answer")
                  .with_fix("try again when /get_load says num_reqs 0"));
}

void Endpoints::everywhere(const HttpRequest& request, const Exchange& exchange, Result<Json> here,
                           MergeAnswers merge) {
  if (options_.rank_router == nullptr || request.from_rank || !here)
    return respond_json(*exchange, here);
  options_.rank_router->broadcast().post_to_all(
      request, [exchange, merge, here = *std::move(here)](auto&& there) mutable {
        respond_json(*exchange, merge(std::move(here), there));
      });
}

// The other ranks write files with the same id.
void Endpoints::start_profile_everywhere(const HttpRequest& request, const Exchange& exchange) {
  auto begun = start_profile(*options_.engine->parts().profiler,
                             options_.settings->observe.admin_folder, request.body);
  if (!begun) return respond_json(*exchange, std::unexpected(std::move(begun).error()));
  HttpRequest others = request;
  others.body = std::move(begun->others);
  everywhere(others, exchange, std::move(begun->answer), merge_profiles);
}

Json Endpoints::load() const {
  const EngineStats stats = options_.engine->stats();
  if (options_.rank_router == nullptr) return load_json(stats);
  return load_json(stats, options_.engine->loads(), options_.rank_router->rank());
}

Json Endpoints::server_info() const {
  Json info = server_info_json(options_.model, *options_.settings, options_.engine->stats());
  if (options_.changes != nullptr)
    for (const SettingChange& change : *options_.changes)
      info["changes"].push_back(to_json(change));
  if (PrefillRole* role = options_.engine->parts().role)
    info["disaggregation"] = change_disaggregation_mode("", role).value_or(Json());
  info["slow_paths"] = Json::array();
  if (options_.slow_paths != nullptr)
    for (const SlowPath& path : *options_.slow_paths) info["slow_paths"].push_back(to_json(path));
  if (options_.rank_router == nullptr) return info;
  info.update(options_.rank_router->describe());
  for (Json& rank : info["ranks"]) rank["dp_rank"] = options_.rank_router->rank();
  return info;
}

void Endpoints::listen(const Exchange& exchange) {
  if (options_.kv_events == nullptr)
    respond_error(*exchange,
                  error(ErrorCode::not_found, "events of the prefix cache are not recorded")
                      .with_fix("start the server with --kv-events"));
  else if (!options_.kv_events->add(exchange))
    respond_error(*exchange, queue_full(queue_limits::kListeners, KvEventFeed::kMaxListeners));
}

void Endpoints::add_probes(std::vector<Route>& routes) {
  const auto probe = [&](std::string_view path, Result<void> (*check)(const Options&)) {
    routes.push_back({"GET", path, HandlerThread::http,
                      [this, check](const HttpRequest&, const Exchange& exchange, TimePoint) {
                        if (const auto well = check(options_); !well)
                          respond_error(*exchange, well.error());
                        else
                          exchange->respond(200, kJsonType, R"({"status":"ok"})");
                      },
                      Access::open});
  };
  // A service may be ready while ranks are missing; the answer then says which.
  routes.push_back({"GET", "/readyz", HandlerThread::http,
                    [this](const HttpRequest&, const Exchange& exchange, TimePoint) {
                      const EngineStats engine = options_.engine->stats();
                      if (const auto well = options_.health->ready(engine); !well) {
                        respond_error(*exchange, well.error());
                        return;
                      }
                      Json body = {{"status", "ok"}};
                      if (!engine.missing_ranks.empty()) body["ranks"] = engine.missing_ranks;
                      exchange->respond(200, kJsonType, body.dump());
                    },
                    Access::open});
  probe("/livez", [](const Options&) { return Result<void>(); });
  for (const char* path : {"/health", "/health_generate"})
    probe(path, [](const Options& p) { return p.health->healthy(p.engine->stats()); });
}

void Endpoints::add_admin(std::vector<Route>& routes) {
  const auto admin = [&](std::string_view methods, std::string_view path, auto handle,
                         HandlerThread thread = HandlerThread::control) {
    routes.push_back(
        {methods, path, thread,
         [handle](const HttpRequest& r, const Exchange& e, TimePoint) { handle(r, e); },
         Access::admin});
  };
  const auto experts = [&](std::string_view path, auto answer) {
    admin("GET, POST", path,
          [answer](const HttpRequest& r, const Exchange& e) { respond_json(*e, answer(r)); });
  };
  admin("POST", "/configure_logging", [this](const HttpRequest& r, const Exchange& e) {
    everywhere(r, e, configure_logging(r.body), merge_settings);
  });
  admin("GET, POST", "/disaggregation_mode", [this](const HttpRequest& r, const Exchange& e) {
    everywhere(r, e, change_disaggregation_mode(r.body, options_.engine->parts().role),
               merge_settings);
  });
  admin("GET, POST", "/start_profile",
        [this](const HttpRequest& r, const Exchange& e) { start_profile_everywhere(r, e); });
  admin("GET, POST", "/stop_profile", [this](const HttpRequest& r, const Exchange& e) {
    everywhere(r, e, stop_profile(*options_.engine->parts().profiler), merge_profiles);
  });
  admin("GET, POST", "/flush_cache", [this](const HttpRequest& r, const Exchange& e) {
    everywhere(r, e, flush_cache(), merge_flushes);
  });
  admin("GET", "/join_terms",
        [this](const HttpRequest&, const Exchange& e) { respond_json(*e, join_terms()); });
  admin("POST", "/scale_ranks",
        [this](const HttpRequest& r, const Exchange& e) { scale_ranks(r, e); });
  experts("/start_expert_distribution_record", [this](const HttpRequest& r) {
    return start_expert_record(options_.engine->parts().expert_stats, r.body);
  });
  experts("/stop_expert_distribution_record", [this](const HttpRequest&) {
    return stop_expert_record(options_.engine->parts().expert_stats);
  });
  experts("/dump_expert_distribution_record", [this](const HttpRequest&) {
    return dump_expert_record(options_.engine->parts().expert_stats);
  });
  // This path is for admins, since its events show the tokens of all clients' prompts.
  admin(
      "GET", "/kv_events", [this](const HttpRequest&, const Exchange& e) { listen(e); },
      HandlerThread::http);
}

std::vector<Route> Endpoints::routes() {
  std::vector<Route> routes;
  const auto json = [&](std::string_view methods, std::string_view path, HandlerThread thread,
                        auto answer) {
    routes.push_back(
        {methods, path, thread, [answer](const HttpRequest& r, const Exchange& e, TimePoint) {
           respond_json(*e, answer(r));
         }});
  };
  for (const Api* api : all_apis())
    if (api != &kResponsesApi)  // its paths are added below
      routes.push_back({"POST", api->path, HandlerThread::text,
                        [this, api](const HttpRequest& r, const Exchange& e, TimePoint arrived) {
                          generate(*api, r, e, arrived);
                        }});
  streams_.add_routes(routes);
  responses_.add_routes(routes);
  add_text_routes(routes, options_.model);
  add_session_routes(routes, *options_.engine, options_.settings->http);
  routes.push_back({"POST", "/abort_request", HandlerThread::control,
                    [this](const HttpRequest& r, const Exchange& e, TimePoint) {
                      everywhere(r, e, abort(r), merge_aborts);
                    }});
  json("GET", "/v1/models", HandlerThread::http, [this](const HttpRequest&) -> Result<Json> {
    return Json{{"object", "list"}, {"data", Json::array({model_card(options_.model, created_)})}};
  });
  json("GET", kModelsPath, HandlerThread::http,
       [this](const HttpRequest& r) { return model_named(r.path); });
  for (const char* path : {"/get_model_info", "/model_info"})
    json("GET", path, HandlerThread::http, [this](const HttpRequest&) -> Result<Json> {
      return model_info_json(options_.model, *options_.settings);
    });
  for (const char* path : {"/get_server_info", "/server_info"})
    json("GET", path, HandlerThread::http,
         [this](const HttpRequest&) -> Result<Json> { return server_info(); });
  json("GET", "/v1/loads", HandlerThread::http, [this](const HttpRequest&) -> Result<Json> {
    return loads_json(options_.engine->stats(), *options_.model.info,
                      options_.rank_router == nullptr ? 0 : options_.rank_router->rank());
  });
  json("GET", "/get_load", HandlerThread::http,
       [this](const HttpRequest&) -> Result<Json> { return load(); });
  json("GET", "/overlap", HandlerThread::http, [this](const HttpRequest&) -> Result<Json> {
    return overlap_json(options_.engine->overlap());
  });
  json("GET", "/speculation", HandlerThread::http, [this](const HttpRequest&) -> Result<Json> {
    return speculation_json(options_.engine->speculation());
  });
  routes.push_back({"GET", "/metrics", HandlerThread::http,
                    [this](const HttpRequest&, const Exchange& exchange, TimePoint) {
                      ClusterCounts cluster;
                      if (options_.rank_router != nullptr) cluster = options_.rank_router->counts();
                      exchange->respond(200, kMetricsContentType,
                                        options_.metrics->render(
                                            options_.engine->stats(), options_.http_counts(),
                                            options_.observer->counts(),
                                            options_.rank_router != nullptr ? &cluster : nullptr));
                    }});
  add_admin(routes);
  add_probes(routes);
  add_page(routes);
  return routes;
}

}  // namespace hocket
