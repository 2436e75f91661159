// Finds the route of a path, or the error for an unknown path.
// Thread: any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "server/access/principal.h"
#include "server/http/http.h"

namespace hocket {

// Says on which thread the handler of a route runs:
//   http      on the http thread, at once, so that probes are answered even if other work waits; it
//             must not block
//   text      on a thread of the text pool
//   control   on a thread that no text work delays; for paths that end requests and paths of
//             admins, whose bodies and work are small
//   session   on a thread for sessions, where it may wait for steps and disks
//   find      on a thread for questions of other ranks about sessions, where it may wait for a
//             step; if they ran on `session`, two ranks that ask each other would both wait
// A handler on `text`, `session` or `find` is not called if the client has left before its turn.
enum class HandlerThread : uint8_t { http, text, control, session, find };

struct Route {
  std::string_view methods;  // "GET", "POST" or "GET, POST"
  std::string_view path;     // a path that ends in "/" matches every path below it
  HandlerThread thread = HandlerThread::http;
  // `arrived` is the time when the request was complete, before it waited for a thread.
  std::function<void(const HttpRequest&, const std::shared_ptr<HttpExchange>&, TimePoint arrived)>
      handle;
  Access access = Access::user;  // the role that the path needs

  // True if its requests count in the limits of a key. Requests that only read do not count: a
  // client may poll an answer in the background while that answer uses up the key's concurrency.
  bool takes_work() const {
    return (thread == HandlerThread::text || thread == HandlerThread::session) &&
           access == Access::user && methods == "POST";
  }
};

// Returns the route of a request; several routes may share a path. Errors: not_found with the
// nearest path; method_not_allowed with the methods that the path takes.
Result<const Route*> find_route(const std::vector<Route>& routes, std::string_view method,
                                std::string_view path);

}  // namespace hocket
