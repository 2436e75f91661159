// What each path does. docs/api.md says it to users.
#pragma once

#include <atomic>
#include <string_view>
#include <vector>

#include "core/server_settings.h"
#include "server/generator.h"
#include "server/observe/observer.h"
#include "server/prepare_answer.h"
#include "server/protocol/answer.h"
#include "server/ranks/front_door.h"
#include "server/reply.h"
#include "server/responses/responses_endpoints.h"
#include "server/routes.h"
#include "server/views/health.h"
#include "server/views/kv_event_feed.h"
#include "server/views/metrics.h"

namespace hocket {

// Borrows everything; owned by the Server.   Thread: any.
class Endpoints {
 public:
  struct Parts {
    const ServerSettings* settings = nullptr;
    ServedModel model;
    Generator* generator = nullptr;
    ReplyService* reply = nullptr;
    Metrics* metrics = nullptr;
    Health* health = nullptr;
    Observer* observer = nullptr;
    const std::vector<SettingChange>* changes = nullptr;  // besides the generator's; null: none
    const std::vector<SlowPath>* slow_paths = nullptr;    // null: none
    KvEventFeed* kv_events = nullptr;                     // null: not offered
    FrontDoor* door = nullptr;                            // null: all ranks are in this process
    ResponseStore* responses = nullptr;
    std::function<HttpCounts()> http_counts;
  };
  explicit Endpoints(Parts parts);

  std::vector<Route> routes();

 private:
  using Exchange = std::shared_ptr<HttpExchange>;

  void generate(Api api, const HttpRequest& request, const Exchange& exchange, TimePoint arrived);
  // Everything before the generator: parse, template, tokens, fit.
  Result<Answer> prepare(Api api, const HttpRequest& request) const;
  Result<Json> model_named(std::string_view path) const;
  Result<Json> abort(const HttpRequest& asked);
  Result<Json> flush_cache();
  Result<Json> configure_logging(std::string_view body);
  void start_profile_everywhere(const HttpRequest& request, const Exchange& exchange);
  // Does `here` and, asked by a client, the same on all other ranks; `together` makes one answer.
  using Together = Result<Json> (*)(Json here, const std::vector<PeerAnswer>& there);
  void everywhere(const HttpRequest& request, const Exchange& exchange, Result<Json> here,
                  Together together);
  Json load() const;
  Json server_info() const;
  Json live() const;
  void listen(const Exchange& exchange);
  void add_probes(std::vector<Route>& routes);
  void add_page(std::vector<Route>& routes);  // and what it reads
  // What only admins may ask for.
  void add_admin(std::vector<Route>& routes);

  Parts parts_;
  ResponsesEndpoints responses_;
  int64_t created_ = 0;  // when this server began, seconds since 1970
};

}  // namespace hocket
