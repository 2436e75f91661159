// Decides which web pages may send requests to this server: its own and the listed ones, no others.
//
// A browser names the page that sends a request in `Origin`. Without a list, answers to other
// origins carry no Access-Control header. Their requests are also refused, since a page can do harm
// without reading the answer. Programs that are not browsers send no Origin and are not affected.
// An image or a link of another page sends no Origin either, but its browser sends Sec-Fetch-Site.
// That header is checked on admins' paths, where a GET is enough to do harm.
// Source: Fetch standard, CORS protocol; Fetch Metadata; RFC 6454.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/access/principal.h"
#include "server/http/http.h"

namespace hocket {

// The object never changes after parse().   Thread: any.
class Origins {
 public:
  Origins() = default;  // lets in the server's own pages only
  // Reads a list like "https://a.example, http://localhost:5173", or "*" for all.
  // Errors: bad_value.
  static Result<Origins> parse(std::string_view list);

  // Returns true if the request comes from no page, from a page of this server, or from a listed
  // one. `access` is the role that the path needs.
  bool allows(const HttpRequest& request, Access access) const;
  // Adds the CORS headers that the browser reads; none for pages of other origins.
  void add_headers(const HttpRequest& request, HttpHeaders& headers) const;

 private:
  bool lists(std::string_view origin) const;

  bool all_ = false;
  std::vector<std::string> origins_;
};

}  // namespace hocket
