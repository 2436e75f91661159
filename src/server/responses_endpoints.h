// Handles the paths below /v1/responses, with the answers that are kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/apis/responses/responses_request.h"
#include "server/ranks/rank_router.h"
#include "server/reply/reply.h"
#include "server/routes.h"
#include "server/stream_endpoints.h"

namespace hocket {

// Borrows all pointers in Options.   Thread: any.
class ResponsesEndpoints {
 public:
  using Exchange = std::shared_ptr<HttpExchange>;
  struct Options {
    ServedModel model;
    ReplyService* reply = nullptr;
    RankRouter* rank_router = nullptr;  // null: all ranks are in this process
    ResponseStore* store = nullptr;
    const RequestStarter* starter = nullptr;
    const StreamEndpoints* streams = nullptr;
  };
  explicit ResponsesEndpoints(const Options& options) : options_(options) {}

  void add_routes(std::vector<Route>& routes) const;

 private:
  void create(const HttpRequest& request, const Exchange& exchange, TimePoint arrived) const;
  void one(const HttpRequest& request, const Exchange& exchange, TimePoint arrived) const;
  Result<std::string> do_with(const HttpRequest& request, const std::string& id,
                              std::string_view what) const;
  Result<std::string> count_input(const HttpRequest& request) const;
  // Returns true if another rank keeps the answer with that id and this one does not; the request
  // was then passed on to it.
  bool is_elsewhere(const std::string& id, const HttpRequest& request,
                    const Exchange& exchange) const;

  const Options options_;
};

}  // namespace hocket
