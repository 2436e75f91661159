// POST /scale_ranks: ranks leave a running service. GET /join_terms: a rank is about to join it.
#include <utility>

#include "server/endpoints.h"
#include "server/http/error_map.h"
#include "server/ranks/scale_ranks.h"

namespace hocket {

// The rank that a client asked has checked what it tells the others.
Result<RankSet> Endpoints::ranks_to_leave(const HttpRequest& request) const {
  HOCKET_TRY(const Json json, parse_json_object(request.body));
  HOCKET_TRY(const ScaleRanks wanted, parse_scale_ranks(json));
  const char* const field = wanted.keep ? "keep" : "leave";
  if (options_.rank_router == nullptr || !options_.leave)
    return fail(
        error(ErrorCode::invalid_request, "no rank can leave: this process is all of the service")
            .with_fix("start the ranks as processes, with --tolerate-ranks")
            .with_param(field));
  const RankRouter& router = *options_.rank_router;
  if (request.from_rank) return wanted.leave;
  HOCKET_TRY(const RankSet leaving, router.ranks_to_leave(wanted));
  if (Result<void> may = router.may_leave(leaving); !may)
    return fail(std::move(may.error()).with_param(field));
  if (router.own_host().size() > 1)
    return fail(error(ErrorCode::invalid_request,
                      "one process runs several ranks of this host, and they end together")
                    .with_fix("send SIGTERM to the process that started them")
                    .with_param(field));
  return leaving;
}

// All ranks are told, so that each of them knows at once which ones stay. A rank that is among them
// ends as by SIGTERM, this one after its answer.
void Endpoints::scale_ranks(const HttpRequest& request, const Exchange& exchange) {
  const auto leaving = ranks_to_leave(request);
  if (!leaving) {
    respond_error(*exchange, leaving.error());
    return;
  }
  RankRouter& router = *options_.rank_router;
  router.note_leaving(*leaving);
  const auto answer = [this, exchange, own = router.rank(),
                       ranks = *leaving](std::span<const PeerAnswer> there) {
    if (const auto json = leaving_answer(ranks, there))
      exchange->respond(200, kJsonType, to_text(*json));
    else
      respond_error(*exchange, json.error());
    if (ranks.has(own)) options_.leave();
  };
  if (request.from_rank) return answer({});
  HttpRequest others = request;
  others.body = to_text(Json{{"leave", to_json(*leaving)}});
  router.ask_all(others, [answer](auto&& there) { answer(there); });
}

Result<Json> Endpoints::join_terms() const {
  if (options_.rank_router == nullptr || options_.join == nullptr)
    return fail(
        error(ErrorCode::invalid_request, "no rank can join: this process is all of the service")
            .with_fix("start the ranks as processes, with --tolerate-ranks"));
  if (options_.rank_router->own_host().size() > 1)
    return fail(error(ErrorCode::invalid_request, "the ranks of a host are started together")
                    .with_fix("start the process of that host again"));
  HOCKET_TRY(const int rank, options_.rank_router->offer_rank());
  Json flags = Json::object();
  for (const auto& [name, value] : *options_.join) flags[name] = value;
  return Json{{"rank", rank}, {"flags", std::move(flags)}};
}

}  // namespace hocket
