// The page: the output of the build in `web/`, embedded in the program and served at `/` and under
// `/ui/`. It loads nothing from other servers, and reads its data from the paths that clients use.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "server/http/http.h"

namespace hocket {

struct PageFile {
  std::string_view path;  // path in the bundle: "index.html", "assets/index-B3x.js"
  std::string_view etag;  // hash of the bytes, with quotes
  std::string_view bytes;
};
// Returns all files of the page, with index.html. The list never changes.
std::span<const PageFile> embedded_page();

// Answers `/` and `/ui/...` with one of the files: 200, or 304 if the client already has it.
// Clients may cache a file with a hash in its name for ever, and must ask for the others each time.
// Errors: not_found if there is no such file.   Thread: any; does not block.
void serve_page(const HttpRequest& request, HttpExchange& exchange);

}  // namespace hocket
