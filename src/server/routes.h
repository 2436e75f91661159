// Finds the function that answers a path, and the error for a path that is not known.
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
#include "server/wire/http.h"

namespace hocket {

// http: at once, on the http thread, so that probes are answered whatever waits; it must not block.
// text: on a thread of the text pool; not at all if the client has left by then.
// control: on a thread of its own, which no text work delays: paths that end requests and paths of
// admins. Their bodies and their work are small.
enum class RunOn : uint8_t { http, text, control };

struct Route {
  std::string_view methods;  // "GET", "POST" or "GET, POST"
  std::string_view path;     // ending in "/" it takes everything below
  RunOn where = RunOn::http;
  // `arrived`: when the request was complete, before it waited for a thread.
  std::function<void(const HttpRequest&, const std::shared_ptr<HttpExchange>&, TimePoint arrived)>
      handle;
  Access access = Access::user;  // who may ask

  // True if its requests count in the limits of a key. Requests that only read do not count: a
  // client polls an answer in the background while that answer uses up the key's concurrency.
  bool takes_work() const {
    return where == RunOn::text && access == Access::user && methods == "POST";
  }
};

// The route of a request; several may share a path. Errors: not_found with the nearest path;
// method_not_allowed with the methods that are.
Result<const Route*> find_route(const std::vector<Route>& routes, std::string_view method,
                                std::string_view path);

}  // namespace hocket
