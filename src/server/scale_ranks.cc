// POST /scale_ranks: ranks leave a running service.
#include <utility>

#include "server/endpoints.h"
#include "server/http/error_map.h"
#include "server/ranks/scale_ranks.h"

namespace hocket {

namespace {

// Only the coordinator may say that it has decided. A client that says so is refused here, since
// its body may be passed on to the coordinator, which would take it for a rank's.
Result<ScaleRanks> read_scale_ranks(const HttpRequest& request) {
  HOCKET_TRY(const Json json, parse_json_object(request.body));
  HOCKET_TRY(const ScaleRanks wanted, parse_scale_ranks(json));
  if (wanted.is_decided && !request.from_rank)
    return fail(error(ErrorCode::invalid_request, "decided is for messages between ranks")
                    .with_fix("leave it out")
                    .with_param("decided"));
  return wanted;
}

}  // namespace

// Decides which ranks leave, if this rank coordinates and has not been told; notes and returns
// them.
Result<RankSet> Endpoints::decide_leaving(const ScaleRanks& wanted) const {
  const char* const field = wanted.keep ? "keep" : "leave";
  if (options_.rank_router == nullptr || !options_.leave)
    return fail(
        error(ErrorCode::invalid_request, "no rank can leave: this process is all of the service")
            .with_fix("start the ranks as processes, with --tolerate-ranks")
            .with_param(field));
  RankChanges& changes = options_.rank_router->changes();
  if (wanted.is_decided) {
    changes.note_leaving(wanted.leave);
    return wanted.leave;
  }
  if (changes.coordinator() != options_.rank_router->rank())
    return fail(error(ErrorCode::lost_rank, "another rank coordinates the others now")
                    .with_fix("ask again"));
  if (changes.own_host().size() > 1)
    return fail(error(ErrorCode::invalid_request,
                      "one process runs several ranks of this host, and they end together")
                    .with_fix("send SIGTERM to the process that started them")
                    .with_param(field));
  auto leaving = changes.decide_leaving(wanted);
  if (!leaving) return fail(std::move(leaving.error()).with_param(field));
  return leaving;
}

// One rank decides, so that two clients cannot make too many leave; a rank that does not coordinate
// passes the request on. All ranks are told then, so that each of them knows at once which ones
// stay. A rank that is among them ends as by SIGTERM, this one after its answer.
void Endpoints::scale_ranks(const HttpRequest& request, const Exchange& exchange) {
  const auto wanted = read_scale_ranks(request);
  if (!wanted) {
    respond_error(*exchange, wanted.error());
    return;
  }
  if (options_.rank_router != nullptr && !request.from_rank) {
    const int coordinator = options_.rank_router->changes().coordinator();
    if (options_.rank_router->forward_to(coordinator, request, exchange)) return;
  }
  const auto leaving = decide_leaving(*wanted);
  if (!leaving) {
    respond_error(*exchange, leaving.error());
    return;
  }
  RankRouter& router = *options_.rank_router;
  const auto answer = [this, exchange, own = router.rank(),
                       ranks = *leaving](std::span<const PeerAnswer> there) {
    const ClusterView view = options_.engine->parts().cluster->view();
    const RankSet drains = ranks.without(view.staying());  // those that leave, or have left
    if (const auto json = leaving_answer(ranks, there, drains))
      exchange->respond(200, kJsonType, to_text(*json));
    else
      respond_error(*exchange, json.error());
    if (ranks.has(own)) options_.leave();
  };
  if (wanted->is_decided) return answer({});
  HttpRequest others = request;
  others.body = to_text(Json{{"leave", to_json(*leaving)}, {"decided", true}});
  router.broadcast().post_to_all(others, [answer](auto&& there) { answer(there); });
}

}  // namespace hocket
