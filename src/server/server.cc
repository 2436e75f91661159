#include "server/server.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "server/access/access_check.h"
#include "server/access/client_key.h"
#include "server/apis/apis.h"
#include "server/endpoints.h"
#include "server/generation/task_pool.h"
#include "server/http/error_map.h"
#include "server/reports/info_json.h"
#include "server/session_routes.h"
#include "server/usage/request_memory.h"

namespace hocket {
namespace {

constexpr size_t kMaxControlBytes = 64 << 10;  // limit of a body for HandlerThread::control
constexpr int kFindThreads = 4;                // questions of ranks that wait at once
constexpr Duration kCutPatience = std::chrono::seconds(2);
constexpr Duration kCutAgain = std::chrono::milliseconds(100);
constexpr Duration kLastBytesPatience = std::chrono::seconds(2);
constexpr Duration kShortAnswers = std::chrono::milliseconds(100);  // to other ranks
constexpr Duration kDrainPoll = std::chrono::milliseconds(5);

size_t max_live(const ServerSettings& settings, const EngineInfo& info) {
  return static_cast<size_t>(settings.memory.max_queued_requests) +
         2 * static_cast<size_t>(info.max_running_requests);
}

RequestMemoryLimits memory_limits(const HttpSettings& settings) {
  return {.request_bytes = int64_t{settings.request_memory_mib} << 20,
          .owner_bytes = int64_t{settings.key_memory_mib} << 20,
          .total_bytes = int64_t{settings.total_request_memory_mib} << 20};
}

std::unique_ptr<RankRouter> make_rank_router(const Server::Options& options, ReplyService& reply,
                                             StreamRecords& stream_records) {
  Engine& engine = *options.engine;
  if (engine.parts().cluster == nullptr) return nullptr;
  // The engine has already refused unknown names.
  const auto routing = parse_routing_policy(options.settings.parallel.dp_routing);
  return std::make_unique<RankRouter>(
      RankRouter::Options{.cluster = engine.parts().cluster,
                          .engine = &engine,
                          .reply = &reply,
                          .stream_records = &stream_records,
                          .routing = routing.value_or(RoutingPolicy::cache_aware),
                          .has_store = !options.settings.parallel.cluster_store.empty(),
                          .tolerate_ranks = options.settings.parallel.tolerate_ranks,
                          .role = engine.parts().role,
                          .max_forwards = max_live(options.settings, engine.info()),
                          .probe_interval = options.rank_probe_interval});
}

Result<std::unique_ptr<Observer>> make_observer(const Server::Options& options) {
  const Engine& engine = *options.engine;
  const HttpSettings& http = options.settings.http;
  const auto scheduler = [settings = options.settings, &engine]() {
    const ServedModel model{.info = &engine.info()};
    return scheduler_json(server_info_json(model, settings, engine.stats())).value_or(Json());
  };
  return Observer::create(
      {.settings = options.settings.observe,
       .model = engine.info().served_model_name,
       .instance = fmt::format("{}:{}", http.host == "0.0.0.0" ? own_host() : http.host, http.port),
       .scheduler = scheduler});
}

}  // namespace

// Members are in the order in which they are made; drain() ends them along the data's path.
struct Server::State {
  State(Options given, ModelFormats chosen, std::unique_ptr<Observer> given_observer)
      : options(std::move(given)),
        formats(std::move(chosen)),
        memory_budget(MemoryBudget::create(memory_limits(options.settings.http))),
        observer(std::move(given_observer)),
        engine(*options.engine),
        metrics(
            engine.info(), first_rank(engine),
            parse_metric_compat(options.settings.observe.metrics_compat).value_or(MetricCompat())),
        health(Health::Limits{.watchdog_seconds = options.settings.http.watchdog_timeout_s}),
        outbox(outbox_size(engine.info().max_running_requests)),
        responses(
            {.max_bytes = static_cast<size_t>(options.settings.http.response_store_mib) << 20}),
        stream_records(
            {.max_bytes = static_cast<size_t>(options.settings.http.stream_store_mib) << 20}),
        reply({.engine = &engine,
               .outbox = &outbox,
               .metrics = &metrics,
               .stream_records = &stream_records,
               .max_live = max_live(options.settings, engine.info())}),
        kv_events(engine.parts().kv_events == nullptr
                      ? nullptr
                      : std::make_unique<KvEventFeed>(*engine.parts().kv_events,
                                                      engine.info().page_tokens)),
        rank_router(make_rank_router(options, reply, stream_records)),
        endpoints(
            {.settings = &options.settings,
             .model = {.info = &engine.info(),
                       .tokenizer = options.tokenizer,
                       .chat_template = options.chat_template,
                       .formats = &formats},
             .engine = &engine,
             .reply = &reply,
             .metrics = &metrics,
             .health = &health,
             .observer = observer.get(),
             .changes = &options.changes,
             .slow_paths = &options.slow_paths,
             .kv_events = kv_events.get(),
             .rank_router = rank_router.get(),
             .leave = options.leave,
             .join_flags = &options.join_flags,
             .responses = &responses,
             .stream_records = &stream_records,
             .push_text = [this](TaskPool::Task&& task,
                                 uint64_t client) { return text->push(std::move(task), client); },
             .http_counts =
                 [this] {
                   const HttpServer* server = counted;
                   return server != nullptr ? server->counts() : HttpCounts{};
                 }}),
        routes(endpoints.routes()) {}

  void handle(HttpRequest&& request, const std::shared_ptr<HttpExchange>& exchange);
  bool wait_idle(Duration patience) const;
  // Returns the number of requests and answers that are not complete.
  size_t num_under_way() const;
  HttpOptions http_options() const;
  Result<void> make_access_check();
  PathAccess needs_of(const HttpRequest& head) const;
  Result<void> open_rank_port();

  Options options;
  const ModelFormats formats;
  const std::shared_ptr<MemoryBudget> memory_budget;
  const std::unique_ptr<Observer> observer;  // must outlive all recorders of requests
  Engine& engine;
  Metrics metrics;
  Health health;
  Outbox outbox;
  ResponseStore responses;
  StreamRecords stream_records;
  ReplyService reply;
  std::unique_ptr<KvEventFeed> kv_events;   // null: not offered
  std::unique_ptr<RankRouter> rank_router;  // null: all ranks are in this process
  Endpoints endpoints;
  const std::vector<Route> routes;
  std::unique_ptr<AccessCheck> access_check;  // guards the port for clients
  std::optional<TaskPool> text, control, session, find;
  std::unique_ptr<HttpServer> http, rank_http;  // for clients; for other ranks, if there are any
  std::atomic<const HttpServer*> counted = nullptr;  // http, when its threads may see it
  bool drained = false;
};

namespace {

// Catches all exceptions of a handler, so that none reaches the thread.
void run_route(const Route& route, const HttpRequest& request,
               const std::shared_ptr<HttpExchange>& exchange, TimePoint arrived) {
  try {
    route.handle(request, exchange, arrived);
  } catch (...) {
    fail_by_exception(*exchange, route.path);
  }
}

void refuse(HttpExchange& exchange, const Error& e) {
  HttpHeaders headers = error_headers(e.code);
  if (e.code == ErrorCode::method_not_allowed) headers.emplace_back("Allow", e.fix);
  exchange.respond(http_status(e.code), kJsonType, exchange.error_format().body(e), headers);
}

}  // namespace

void Server::State::handle(HttpRequest&& request, const std::shared_ptr<HttpExchange>& exchange) {
  const TimePoint arrived = RealClock().now();
  const auto route = find_route(routes, request.method, request.path);
  if (!route) return refuse(*exchange, route.error());
  if ((*route)->thread == HandlerThread::http)
    return run_route(**route, request, exchange, arrived);
  const bool controls = (*route)->thread == HandlerThread::control;
  if (controls && request.body.size() > kMaxControlBytes)
    return refuse(*exchange, error(ErrorCode::payload_too_large,
                                   "the body has {} bytes; {} accepts at most {}",
                                   request.body.size(), (*route)->path, kMaxControlBytes));
  const uint64_t client = proven_client_hash(request);
  const uint64_t key = (*route)->thread == HandlerThread::session
                           ? session_task_key(request, options.settings.http)
                           : 0;
  auto task = [route = *route, request = std::move(request), exchange, arrived] {
    // If the client has left, only control tasks run: they may end its other requests.
    if (route->thread != HandlerThread::control && exchange->is_closed()) return;
    run_route(*route, request, exchange, arrived);
  };
  TaskPool& pool = controls                                     ? *control
                   : (*route)->thread == HandlerThread::session ? *session
                   : (*route)->thread == HandlerThread::find    ? *find
                                                                : *text;
  if (auto taken = pool.push(std::move(task), client, key); !taken)
    refuse(*exchange, taken.error());
}

size_t Server::State::num_under_way() const {
  // The order matters: a request that another rank refuses moves to the second count.
  const size_t elsewhere = rank_router ? rank_router->num_forwards() : 0;
  return elsewhere + reply.num_live();
}

bool Server::State::wait_idle(Duration patience) const {
  const TimePoint deadline = RealClock().now() + patience;
  while (num_under_way() > 0) {
    if (RealClock().now() >= deadline) return false;
    std::this_thread::sleep_for(kDrainPoll);
  }
  return true;
}

HttpOptions Server::State::http_options() const {
  const HttpSettings& settings = options.settings.http;
  HttpOptions out;
  out.host = settings.host;
  out.port = settings.port;
  out.num_threads = options.num_http_threads;
  out.memory_budget = memory_budget;
  out.max_connections = settings.max_connections;
  out.probes = {"/livez", "/readyz", "/health"};
  out.error_format_of = error_format_of;
  out.max_body_bytes = settings.max_body_bytes;
  out.header_timeout = from_seconds(settings.header_timeout_s);
  out.body_timeout = from_seconds(settings.body_timeout_s);
  out.write_timeout = from_seconds(settings.write_timeout_s);
  out.idle_timeout = from_seconds(settings.idle_timeout_s);
  return out;
}

PathAccess Server::State::needs_of(const HttpRequest& head) const {
  const auto route = find_route(routes, head.method, head.path);
  if (!route) return {};
  return {.access = (*route)->access, .counted = (*route)->takes_work() || asks_for_stream(head)};
}

Result<void> Server::State::make_access_check() {
  const HttpSettings& settings = options.settings.http;
  HOCKET_TRY(
      access_check,
      AccessCheck::create({.keys = {.api_key = settings.api_key,
                                    .admin_api_key = settings.admin_api_key,
                                    .file = settings.api_key_file},
                           .cors_origins = settings.cors_origins,
                           .allowed_hosts = settings.allowed_hosts,
                           .host = settings.host,
                           .tls = !settings.ssl_certfile.empty(),
                           .needs = [this](const HttpRequest& head) { return needs_of(head); }}));
  return {};
}

// Opens a port for the other ranks, with the same routes. It needs its own key, which only members
// of the cluster learn; no client's key opens it.
Result<void> Server::State::open_rank_port() {
  const std::string key = fresh_rank_key();
  HttpOptions ranks = http_options();
  ranks.host = options.internal_host.empty() ? "127.0.0.1" : options.internal_host;
  ranks.port = 0;
  ranks.thread_name = "rank_http";
  ranks.cluster_tls = options.engine->parts().cluster->tls();
  ranks.admit = [key](const HttpRequest& head) { return admit_rank(head, key); };
  const HttpHandler take = [this](HttpRequest&& request,
                                  const std::shared_ptr<HttpExchange>& exchange) {
    handle(std::move(request), exchange);
  };
  const std::string host = ranks.host;
  HOCKET_TRY(rank_http, HttpServer::create(std::move(ranks), take));
  rank_router->open({.host = host, .port = static_cast<uint16_t>(rank_http->port())}, key);
  return {};
}

Result<std::unique_ptr<Server>> Server::create(Options options) {
  HOCKET_CHECK(options.engine != nullptr);
  if (auto known = parse_metric_compat(options.settings.observe.metrics_compat); !known)
    return fail(known.error());
  HOCKET_TRY(auto observer, make_observer(options));
  HOCKET_TRY(ModelFormats formats, choose_model_formats(options.settings.answers,
                                                        options.chat_template, options.tokenizer));
  auto state = std::make_unique<State>(std::move(options), std::move(formats), std::move(observer));
  State& s = *state;
  HOCKET_TRY_VOID(s.make_access_check());
  s.text.emplace(TaskPool::Options{.name = "text", .num_threads = s.options.num_text_threads});
  s.control.emplace(TaskPool::Options{.name = "control"});
  s.session.emplace(TaskPool::Options{.name = "session",
                                      .num_threads = Engine::kMaxSessionCalls,
                                      .max_running_of_client = Engine::kMaxSessionsOfClient});
  s.find.emplace(TaskPool::Options{.name = "find", .num_threads = kFindThreads});
  HttpOptions http = s.http_options();
  http.tls = {.certificate = s.options.settings.http.ssl_certfile,
              .key = s.options.settings.http.ssl_keyfile};
  http.admit = [&s](const HttpRequest& head) { return s.access_check->admit(head); };
  http.on_status = [&s](int status) { s.metrics.count_http(status); };
  s.health.set_loaded();
  std::unique_ptr<Server> server(new Server(std::move(state)));
  // Other ranks learn this one's address before they connect to its engine.
  if (s.rank_router) HOCKET_TRY_VOID(s.open_rank_port());
  s.engine.start(s.outbox);
  HOCKET_TRY(s.http, HttpServer::create(std::move(http),
                                        [&s](HttpRequest&& request,
                                             const std::shared_ptr<HttpExchange>& exchange) {
                                          s.handle(std::move(request), exchange);
                                        }));
  s.counted = s.http.get();
  return server;
}

Server::Server(std::unique_ptr<State> state) : state_(std::move(state)) {}

Server::~Server() {
  drain(Duration{});
}

int Server::port() const {
  return state_->http->port();
}

Result<void> Server::watchdog() const {
  if (auto failure = state_->engine.failure()) return fail(*std::move(failure));
  return state_->health.watchdog(state_->engine.stats());
}

Result<void> Server::reload() {
  HOCKET_TRY_VOID(state_->access_check->reload());
  return state_->http->reload_tls();
}

// Ends the connections of other ranks, which then compute the requests that they forwarded here.
void Server::return_forwarded_requests() {
  State& s = *state_;
  if (!s.rank_router || !s.rank_http || s.options.settings.parallel.tolerate_ranks == 0) return;
  const RankChanges& changes = s.rank_router->changes();
  if (const auto goes = changes.may_leave(changes.own_host()); !goes) {
    log::warning("shutdown: the other ranks pause without this one: {}", goes.error().message);
    return;
  }
  s.rank_http->stop(kShortAnswers);
}

bool Server::drain(Duration patience, std::string_view why) {
  State& s = *state_;
  if (std::exchange(s.drained, true)) return true;
  s.health.set_draining();
  // Clients still get the answer shutting_down; for ranks a closed port is enough.
  if (s.http) s.http->begin_drain();
  if (s.rank_http) s.rank_http->stop_accepting();
  s.engine.stop_accepting();
  if (s.rank_router) {
    RankChanges& changes = s.rank_router->changes();
    changes.note_leaving(changes.own_host());
  }
  return_forwarded_requests();
  const bool complete = s.wait_idle(patience);
  if (!complete) {
    log::warning(
        "shutdown: {} answers are cut off after {} s; a longer --shutdown-timeout lets them "
        "finish",
        s.num_under_way(), to_seconds(patience));
    // A rank whose connection is cut continues the answer, as if this rank were lost; it would
    // pass an error on to its client.
    if (s.rank_http) s.rank_http->stop(Duration{});
    if (s.rank_router) s.rank_router->cut_off();
    // An answer that this rank takes over just now may begin after the first time.
    const TimePoint deadline = RealClock().now() + kCutPatience;
    do {
      s.reply.cut_off(why);
    } while (!s.wait_idle(kCutAgain) && RealClock().now() < deadline);
  }
  s.engine.stop();
  if (s.rank_router) s.rank_router->stop();
  s.reply.stop();
  if (s.kv_events) s.kv_events->stop();
  for (HttpServer* port : {s.http.get(), s.rank_http.get()})
    if (port != nullptr) port->stop(kLastBytesPatience);
  s.text.reset();
  s.control.reset();
  s.session.reset();
  s.find.reset();
  s.observer->stop();
  return complete;
}

}  // namespace hocket
