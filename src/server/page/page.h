// The page: what `web/` was built to, embedded in the program. `/` and what lies under `/ui/`;
// it loads nothing from elsewhere, and its data from the paths that clients use.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "server/wire/http.h"

namespace hocket {

struct PageFile {
  std::string_view path;  // in the bundle: "index.html", "assets/index-B3x.js"
  std::string_view etag;  // of its bytes, quotes included
  std::string_view bytes;
};
// Constant; index.html is among them.
std::span<const PageFile> embedded_page();

// Answers `/` and `/ui/...` with one of the files: 200, or 304 where the client has it already.
// What carries a hash in its name may be kept for ever, the rest is asked for again each time. A
// name that is none: not_found.   Thread: any; does not block.
void serve_page(const HttpRequest& request, HttpExchange& exchange);

}  // namespace hocket
