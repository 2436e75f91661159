// GET /join_terms: a rank is about to join a running service.
#include <utility>

#include "server/endpoints.h"

namespace hocket {

Result<Json> Endpoints::join_terms() const {
  if (options_.rank_router == nullptr || options_.join_flags == nullptr)
    return fail(
        error(ErrorCode::invalid_request, "no rank can join: this process is all of the service")
            .with_fix("start the ranks as processes, with --tolerate-ranks"));
  if (options_.rank_router->changes().own_host().size() > 1)
    return fail(error(ErrorCode::invalid_request, "the ranks of a host are started together")
                    .with_fix("start the process of that host again"));
  HOCKET_TRY(const int rank, options_.rank_router->changes().offer_rank());
  Json flags = Json::object();
  for (const auto& [name, value] : *options_.join_flags) flags[name] = value;
  return Json{{"rank", rank}, {"flags", std::move(flags)}};
}

}  // namespace hocket
