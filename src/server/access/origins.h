// Which web pages may ask this server: its own and those that are listed, no others.
//
// A browser says in `Origin` whose page asks. Without a list the answers to other origins carry no
// Access-Control header, and, since a page need not read an answer to do harm, their requests are
// refused. Programs that are no browsers send no Origin and notice nothing. An image or a link
// of another page sends no Origin either, but its browser sends Sec-Fetch-Site. That is checked on
// admins' paths, where a GET is enough to do harm.
// Source: Fetch standard, CORS protocol; Fetch Metadata; RFC 6454.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/wire/http.h"

namespace hocket {

// Constant.   Thread: any.
class Origins {
 public:
  Origins() = default;  // the server's own pages only
  // "https://a.example, http://localhost:5173", or "*" for all. Errors: bad_value.
  static Result<Origins> parse(std::string_view list);

  // Whether the request comes from no page, a page of this server, or one that is listed. `access`:
  // what its path asks for.
  bool lets_in(const HttpRequest& request, Access access) const;
  // What an answer tells the browser; nothing for pages of other origins.
  void add_headers(const HttpRequest& request, HttpHeaders& headers) const;

 private:
  bool lists(std::string_view origin) const;

  bool all_ = false;
  std::vector<std::string> origins_;
};

}  // namespace hocket
