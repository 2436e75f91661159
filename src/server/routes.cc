#include "server/routes.h"

#include <algorithm>

#include "base/nearest_name.h"

namespace hocket {
namespace {

constexpr size_t kMaxQuoted = 128;  // bytes of a client's text in an error

bool matches(const Route& route, std::string_view path) {
  if (route.path.ends_with('/') && route.path.size() > 1)
    return path.size() > route.path.size() && path.starts_with(route.path);
  return route.path == path;
}

// `methods` is a list as in Route, "GET, POST".
bool takes(std::string_view methods, std::string_view method) {
  constexpr std::string_view kBetween = ", ";
  while (true) {
    const size_t end = std::min(methods.find(kBetween), methods.size());
    if (methods.substr(0, end) == method) return true;
    if (end == methods.size()) return false;
    methods.remove_prefix(end + kBetween.size());
  }
}

}  // namespace

Result<const Route*> find_route(const std::vector<Route>& routes, std::string_view method,
                                std::string_view path) {
  std::string methods;
  for (const Route& route : routes) {
    if (!matches(route, path)) continue;
    if (takes(route.methods, method)) return &route;
    methods.append(methods.empty() ? "" : ", ").append(route.methods);
  }
  if (!methods.empty())
    return fail(error(ErrorCode::method_not_allowed, "{} takes {}, not {}",
                      path.substr(0, kMaxQuoted), methods, method.substr(0, kMaxQuoted))
                    .with_fix(methods));
  std::vector<std::string_view> paths;
  for (const Route& route : routes) paths.push_back(route.path);
  Error unknown = error(ErrorCode::not_found, "there is no {}", path.substr(0, kMaxQuoted));
  if (const auto nearest = nearest_name(path, paths))
    unknown.fix = fmt::format("did you mean {}?", *nearest);
  else
    unknown.fix = "docs/api.md of hocket lists the paths";
  return fail(std::move(unknown));
}

}  // namespace hocket
