#include "server/page/page.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "server/http/error_map.h"

namespace hocket {
namespace {

constexpr std::string_view kFolder = "/ui/";
constexpr std::string_view kHashedFolder = "assets/";  // its names contain a hash of the build
// Everything is fetched, framed or run from this server only; data: is for small drawings.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

std::string_view type_of(std::string_view path) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kTypes = {
      {{".html", "text/html; charset=utf-8"},
       {".js", "text/javascript; charset=utf-8"},
       {".css", "text/css; charset=utf-8"},
       {".svg", "image/svg+xml"},
       {".json", "application/json"},
       {".webmanifest", "application/manifest+json"}}};
  for (const auto& [ending, type] : kTypes)
    if (path.ends_with(ending)) return type;
  return "application/octet-stream";
}

// True if the etag is in the header's list of tags, weak or not, or the header is "*".
bool has_tag(std::string_view given, std::string_view etag) {
  return given == "*" || given.find(etag) != std::string_view::npos;
}

}  // namespace

void serve_page(const HttpRequest& request, HttpExchange& exchange) {
  const std::string_view path = request.path;
  const std::string_view name = path == "/" ? "index.html" : path.substr(kFolder.size());
  const auto files = embedded_page();
  const auto file = std::ranges::find(files, name, &PageFile::path);
  if (file == files.end()) {
    respond_error(exchange, error(ErrorCode::not_found, "the page has no {}", path.substr(0, 128))
                                .with_fix("/ is the page"));
    return;
  }
  const bool is_hashed = name.starts_with(kHashedFolder);
  const HttpHeaders headers = {
      {"ETag", std::string(file->etag)},
      {"Cache-Control", is_hashed ? "public, max-age=31536000, immutable" : "no-cache"},
      {"Content-Security-Policy", kPolicy},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"}};
  if (has_tag(request.header("if-none-match"), file->etag))
    exchange.respond(304, "", "", headers);
  else
    exchange.respond(200, type_of(name), file->bytes, headers);
}

}  // namespace hocket
