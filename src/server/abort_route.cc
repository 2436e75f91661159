#include "server/abort_route.h"

#include "server/access/request_sender.h"
#include "server/apis/sglang/generate_request.h"

namespace hocket {
namespace {

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

// An admin may end any request, other clients only their own.
Result<Json> abort_requests(const AbortOptions& options, const HttpRequest& asked) {
  HOCKET_TRY(const Json json, parse_json_object(asked.body));
  HOCKET_TRY(const AbortBody request, parse_abort(json));
  const Principal* principal = principal_of(asked);
  const bool is_admin = principal == nullptr || principal->role == Role::admin;
  size_t aborted = 0;
  if (request.all) {
    if (!is_admin)
      return fail(error(ErrorCode::forbidden,
                        "abort_all needs an admin key, and the key of {} is a user's",
                        principal_name(asked))
                      .with_fix("{\"rid\": ...} ends one of your own requests")
                      .with_param("abort_all"));
    aborted = options.reply->num_live();
    options.engine->abort_all();
  } else {
    const std::string_view who = is_admin ? std::string_view() : principal_name(asked);
    options.stream_records->erase(request.rid, who);
    aborted = options.reply->abort(request.rid, who);
  }
  return Json{{"aborted", aborted}};
}

}  // namespace

void add_abort_route(std::vector<Route>& routes, const AbortOptions& options) {
  routes.push_back({"POST", "/abort_request", HandlerThread::control,
                    [options](const HttpRequest& request,
                              const std::shared_ptr<HttpExchange>& exchange, TimePoint) {
                      answer_everywhere(peers_of(options.rank_router), request, exchange,
                                        abort_requests(options, request), merge_aborts);
                    }});
}

}  // namespace hocket
