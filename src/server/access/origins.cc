#include "server/access/origins.h"

#include <algorithm>

#include "server/access/split_words.h"
#include "server/http/request_target.h"

namespace hocket {
namespace {

constexpr const char* kExposed =
    "Retry-After, X-Request-Id, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
    "x-ratelimit-reset-requests, x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, "
    "x-ratelimit-reset-tokens";

// True for "https://a.example:8443": a scheme and a host, with or without a port, and nothing after
// it.
bool is_origin(std::string_view text) {
  if (text == "null") return true;
  const size_t colons = text.find("://");
  if (colons == text.npos || colons == 0) return false;
  const std::string_view host = text.substr(colons + 3);
  return !host.empty() && host.find_first_of("/?#@, *") == host.npos;
}

std::string_view host_of(std::string_view origin) {
  const size_t colons = origin.find("://");
  return colons == origin.npos ? std::string_view() : origin.substr(colons + 3);
}

}  // namespace

Result<Origins> Origins::parse(std::string_view list) {
  Origins out;
  for (const std::string_view origin : split_words(list, ", \t")) {
    if (origin == "*")
      out.all_ = true;
    else if (is_origin(origin))
      out.origins_.emplace_back(origin);
    else
      return fail(error(ErrorCode::bad_value, "'{}' is not an origin", origin)
                      .with_fix("--cors-origins https://host:port,http://localhost:5173 or '*'; "
                                "no path, no slash at the end")
                      .with_param("cors-origins"));
  }
  return out;
}

bool Origins::lists(std::string_view origin) const {
  return all_ || std::ranges::any_of(
                     origins_, [&](const std::string& known) { return same_name(known, origin); });
}

bool Origins::allows(const HttpRequest& request, Access access) const {
  const std::string_view origin = request.header("origin");
  if (lists(origin)) return true;
  // Only the browser can set this header. "none": the user typed the address.
  const std::string_view site = request.header("sec-fetch-site");
  if (site == "same-origin") return true;
  if (origin.empty()) return access != Access::admin || site.empty() || site == "none";
  const std::string_view host = host_of(origin);
  return !host.empty() && (same_name(host, request.header("host")) ||
                           same_name(host, request.header("x-forwarded-host")));
}

void Origins::add_headers(const HttpRequest& request, HttpHeaders& headers) const {
  if (!all_ && origins_.empty()) return;
  headers.emplace_back("Vary", "Origin");
  const std::string_view origin = request.header("origin");
  if (origin.empty() || !lists(origin)) return;
  headers.emplace_back("Access-Control-Allow-Origin", all_ ? "*" : std::string(origin));
  headers.emplace_back("Access-Control-Expose-Headers", kExposed);
  if (request.method != "OPTIONS" || request.header("access-control-request-method").empty())
    return;
  headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS");
  // Any header that a client library sends is allowed: the key is the protection.
  const std::string_view wanted = request.header("access-control-request-headers");
  if (!wanted.empty()) headers.emplace_back("Access-Control-Allow-Headers", wanted);
  headers.emplace_back("Access-Control-Max-Age", "600");
}

}  // namespace hocket
