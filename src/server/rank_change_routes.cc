#include "server/rank_change_routes.h"

#include <utility>

#include "server/access/request_sender.h"
#include "server/http/error_map.h"
#include "server/ranks/scale_ranks.h"

namespace hocket {
namespace {

using Exchange = std::shared_ptr<HttpExchange>;

// Only the coordinator may say that it has decided. A client that says so is refused here, since
// its body may be passed on to the coordinator, which would take it for a rank's.
Result<ScaleRanks> read_scale_ranks(const HttpRequest& request) {
  HOCKET_TRY(const Json json, parse_json_object(request.body));
  HOCKET_TRY(const ScaleRanks wanted, parse_scale_ranks(json));
  if (wanted.is_decided && !is_from_rank(request))
    return fail(error(ErrorCode::invalid_request, "decided is for messages between ranks")
                    .with_fix("leave it out")
                    .with_param("decided"));
  return wanted;
}

Result<RankSet> decide_leaving(const RankChangeOptions& options, const ScaleRanks& wanted) {
  if (options.rank_router == nullptr || !options.leave)
    return fail(
        error(ErrorCode::invalid_request, "no rank can leave: this process is all of the service")
            .with_fix("start the ranks as processes, with --tolerate-ranks")
            .with_param(wanted.field()));
  return options.rank_router->changes().decide_leaving(wanted);
}

// One rank decides, so that two clients cannot make too many leave; a rank that does not coordinate
// passes the request on. All ranks are informed then, so that each of them knows at once which ones
// stay. A rank that is among them ends as by SIGTERM, this one after its answer.
void scale_ranks(const RankChangeOptions& options, const HttpRequest& request,
                 const Exchange& exchange) {
  const auto wanted = read_scale_ranks(request);
  if (!wanted) {
    respond_error(*exchange, wanted.error());
    return;
  }
  if (options.rank_router != nullptr && !is_from_rank(request)) {
    const int coordinator = options.rank_router->changes().coordinator();
    if (options.rank_router->forward_to(coordinator, request, exchange)) return;
  }
  const auto leaving = decide_leaving(options, *wanted);
  if (!leaving) {
    respond_error(*exchange, leaving.error());
    return;
  }
  RankRouter& router = *options.rank_router;
  const auto answer = [cluster = options.engine->parts().cluster, leave = options.leave, exchange,
                       own = router.rank(), ranks = *leaving](std::span<const PeerAnswer> there) {
    const ClusterView view = cluster->view();
    const RankSet drains = ranks.without(view.staying());  // those that leave, or have left
    respond_json(*exchange, leaving_answer(ranks, there, drains));
    if (ranks.has(own)) leave();
  };
  if (wanted->is_decided) return answer({});
  HttpRequest others = request;
  others.body = to_text(Json{{"leave", to_json(*leaving)}, {"decided", true}});
  router.broadcast().post_to_all(others, [answer](auto&& there) { answer(there); });
}

Result<Json> join_terms(const RankChangeOptions& options) {
  if (options.rank_router == nullptr || options.join_flags == nullptr)
    return fail(
        error(ErrorCode::invalid_request, "no rank can join: this process is all of the service")
            .with_fix("start the ranks as processes, with --tolerate-ranks"));
  HOCKET_TRY(const int rank, options.rank_router->changes().offer_rank());
  Json flags = Json::object();
  for (const auto& [name, value] : *options.join_flags) flags[name] = value;
  return Json{{"rank", rank}, {"flags", std::move(flags)}};
}

}  // namespace

void add_rank_change_routes(std::vector<Route>& routes, const RankChangeOptions& options) {
  routes.push_back({"GET", "/join_terms", HandlerThread::control,
                    [options](const HttpRequest&, const Exchange& exchange, TimePoint) {
                      respond_json(*exchange, join_terms(options));
                    },
                    Access::admin});
  routes.push_back({"POST", "/scale_ranks", HandlerThread::control,
                    [options](const HttpRequest& request, const Exchange& exchange, TimePoint) {
                      scale_ranks(options, request, exchange);
                    },
                    Access::admin});
}

}  // namespace hocket
