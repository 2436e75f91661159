// Maps each path to its handler. docs/api.md describes the paths for users.
#pragma once

#include <atomic>
#include <string_view>
#include <vector>

#include "core/server_settings.h"
#include "engine/engine.h"
#include "server/generation/answer.h"
#include "server/generation/prepared_request.h"
#include "server/health.h"
#include "server/join_flags.h"
#include "server/observe/observer.h"
#include "server/ranks/rank_router.h"
#include "server/reply/reply.h"
#include "server/reports/kv_event_feed.h"
#include "server/reports/metrics.h"
#include "server/responses_endpoints.h"
#include "server/routes.h"
#include "server/stream_endpoints.h"

namespace hocket {

// All pointers in Options are borrowed. The Server owns the object.   Thread: any.
class Endpoints {
 public:
  struct Options {
    const ServerSettings* settings = nullptr;
    ServedModel model;
    Engine* engine = nullptr;
    ReplyService* reply = nullptr;
    Metrics* metrics = nullptr;
    Health* health = nullptr;
    Observer* observer = nullptr;
    const std::vector<SettingChange>* changes = nullptr;  // besides the engine's; null: none
    const std::vector<SlowPath>* slow_paths = nullptr;    // null: none
    KvEventFeed* kv_events = nullptr;                     // null: not offered
    RankRouter* rank_router = nullptr;                    // null: all ranks are in this process
    std::function<void()> leave;                          // Server::Options::leave
    const JoinFlags* join_flags = nullptr;                // null: no rank can join
    ResponseStore* responses = nullptr;
    StreamRecords* stream_records = nullptr;
    std::function<Result<void>(TaskPool::Task&&, uint64_t client)> push_text;
    std::function<HttpCounts()> http_counts;
  };
  explicit Endpoints(Options options);

  std::vector<Route> routes();

 private:
  using Exchange = std::shared_ptr<HttpExchange>;

  void generate(const Api& api, const HttpRequest& request, const Exchange& exchange,
                TimePoint arrived);
  // Does all work before the engine: parses, applies the template, tokenizes, fits to the
  // context.
  Result<PreparedRequest> prepare(const Api& api, const HttpRequest& request,
                                  std::optional<AnswerIdentity> given) const;
  // Sets the facts of the connection and of its client, which the body does not have.
  Result<void> add_client_facts(PreparedRequest& prepared, const HttpRequest& request,
                                TimePoint arrived) const;
  // Makes the rest of a stream whose client came back.
  void resume_stream(const HttpRequest& asked, const Exchange& exchange, RecordedRequest recorded,
                     StreamPosition position, TimePoint arrived);
  Result<Json> model_named(std::string_view path) const;
  Result<Json> abort(const HttpRequest& asked);
  Result<Json> flush_cache();
  Result<Json> configure_logging(std::string_view body);
  // Returns the ranks that leave the service, and notes that they do.
  Result<RankSet> decide_leaving(const ScaleRanks& wanted) const;
  // Makes ranks leave the service, this one last.
  void scale_ranks(const HttpRequest& request, const Exchange& exchange);
  // Returns which rank may join, and the flags that it must have.
  Result<Json> join_terms() const;
  void start_profile_everywhere(const HttpRequest& request, const Exchange& exchange);
  // Answers with `here`; if a client sent the request, it is also sent to all other ranks, and
  // `merge` makes one answer from theirs and `here`.
  using MergeAnswers = Result<Json> (*)(Json here, const std::vector<PeerAnswer>& there);
  void everywhere(const HttpRequest& request, const Exchange& exchange, Result<Json> here,
                  MergeAnswers merge);
  Json load() const;
  Json server_info() const;
  Json live() const;
  void listen(const Exchange& exchange);
  void add_probes(std::vector<Route>& routes);
  void add_page(std::vector<Route>& routes);  // the page and the paths that it reads
  // Adds the paths that only admins may use.
  void add_admin(std::vector<Route>& routes);

  Options options_;
  StreamEndpoints streams_;
  ResponsesEndpoints responses_;
  int64_t created_ = 0;  // start of this server, seconds since 1970
};

// Merges the answers of all ranks to /start_profile or /stop_profile: all files, and the ranks that
// failed.
Result<Json> merge_profiles(Json here, const std::vector<PeerAnswer>& there);

}  // namespace hocket
