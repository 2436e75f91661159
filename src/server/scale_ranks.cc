// POST /scale_ranks: ranks leave a running service.
#include <utility>

#include "server/endpoints.h"
#include "server/http/error_map.h"
#include "server/ranks/scale_ranks.h"

namespace hocket {
namespace {

Json list_of(const RankSet& ranks) {
  Json list = Json::array();
  for (int rank = 0; rank <= RankSet::kMaxRank; ++rank)
    if (ranks.has(rank)) list.push_back(rank);
  return list;
}

}  // namespace

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
  HOCKET_TRY(const RankSet leaving, router.ranks_to_leave(wanted));
  if (request.from_rank) return leaving;
  if (Result<void> may = router.may_leave(leaving); !may)
    return fail(std::move(may.error()).with_param(field));
  if (router.own_host().size() > 1)
    return fail(error(ErrorCode::invalid_request,
                      "one process runs several ranks of this host, and they end together")
                    .with_fix("send SIGTERM to the process that started them")
                    .with_param(field));
  return leaving;
}

// Each rank that is told ends as by SIGTERM, this one after its answer.
void Endpoints::scale_ranks(const HttpRequest& request, const Exchange& exchange) {
  const auto leaving = ranks_to_leave(request);
  if (!leaving) {
    respond_error(*exchange, leaving.error());
    return;
  }
  const auto answer = [this, exchange, ranks = *leaving] {
    exchange->respond(200, kJsonType, to_text(Json{{"leaving", list_of(ranks)}}));
    if (ranks.has(options_.rank_router->rank())) options_.leave();
  };
  if (request.from_rank) return answer();
  HttpRequest others = request;
  others.body = to_text(Json{{"leave", list_of(*leaving)}});
  options_.rank_router->ask_all(others, [answer, exchange, ranks = *leaving](auto&& there) {
    std::string complaints;
    for (const PeerAnswer& peer : there)
      if (peer.status != 200 && ranks.has(peer.rank))
        complaints += (complaints.empty() ? "" : "; ") + complaint_of(peer);
    if (complaints.empty()) {
      answer();
      return;
    }
    respond_error(*exchange,
                  error(ErrorCode::invalid_request, "not all of these ranks leave: {}", complaints)
                      .with_fix("/readyz says which ranks are there"));
  });
}

}  // namespace hocket
