#include "server/endpoints.h"

#include <utility>

#include "server/abort_route.h"
#include "server/admin_routes.h"
#include "server/page_routes.h"
#include "server/probe_routes.h"
#include "server/rank_change_routes.h"
#include "server/report_routes.h"
#include "server/session_routes.h"
#include "server/text_routes.h"

namespace hocket {

Endpoints::Endpoints(Options options)
    : options_(std::move(options)),
      starter_({.settings = options_.settings,
                .model = options_.model,
                .engine = options_.engine,
                .reply = options_.reply,
                .health = options_.health,
                .observer = options_.observer,
                .rank_router = options_.rank_router,
                .answers = options_.responses,
                .stream_records = options_.stream_records}),
      streams_({.starter = &starter_,
                .reply = options_.reply,
                .stream_records = options_.stream_records,
                .rank_router = options_.rank_router,
                .push = options_.push_text}),
      responses_({.model = options_.model,
                  .reply = options_.reply,
                  .rank_router = options_.rank_router,
                  .store = options_.responses,
                  .starter = &starter_,
                  .streams = &streams_}) {}

std::vector<Route> Endpoints::routes() const {
  std::vector<Route> routes;
  streams_.add_routes(routes);
  responses_.add_routes(routes);
  add_text_routes(routes, options_.model);
  add_session_routes(routes, *options_.engine, options_.settings->http, options_.rank_router);
  add_abort_route(routes, {.engine = options_.engine,
                           .reply = options_.reply,
                           .stream_records = options_.stream_records,
                           .rank_router = options_.rank_router});
  add_report_routes(routes, {.settings = options_.settings,
                             .model = options_.model,
                             .engine = options_.engine,
                             .metrics = options_.metrics,
                             .observer = options_.observer,
                             .changes = options_.changes,
                             .slow_paths = options_.slow_paths,
                             .rank_router = options_.rank_router,
                             .http_counts = options_.http_counts});
  add_admin_routes(routes, {.settings = options_.settings,
                            .engine = options_.engine,
                            .observer = options_.observer,
                            .rank_router = options_.rank_router});
  add_rank_change_routes(routes, {.engine = options_.engine,
                                  .rank_router = options_.rank_router,
                                  .leave = options_.leave,
                                  .join_flags = options_.join_flags});
  add_kv_event_route(routes, options_.kv_events);
  add_probe_routes(routes, options_.engine, options_.health);
  add_page_routes(routes,
                  {.engine = options_.engine, .reply = options_.reply, .health = options_.health});
  return routes;
}

}  // namespace hocket
