// Fuzzes key files and lists of origins, which an operator writes, and the Origin header of
// clients. Any text is accepted, or refused with an error message.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/access/access_check.h"
#include "server/access/api_key.h"
#include "server/http/error_map.h"

using namespace hocket;

namespace {

void check_ring(std::string_view text) {
  const auto ring = KeyRing::parse(text, "keys");
  if (!ring) {
    HOCKET_CHECK(ring.error().message.starts_with("keys line "));
    return;
  }
  HOCKET_CHECK(ring->size() <= KeyRing::kMaxKeys);
  HOCKET_CHECK((ring->empty() || ring->find("") == nullptr || text.find("sha256:") != text.npos));
  for (size_t at = 0; at < text.size();) {  // a line's words include its name and its key
    const size_t end = std::min(text.find_first_of(" \n\t\r#", at), text.size());
    if (const PrincipalPtr who = ring->find(text.substr(at, end - at)); who != nullptr)
      HOCKET_CHECK((!who->name.empty() && who->name.size() <= 64));
    at = end + 1;
  }
}

void check_origins(std::string_view list, std::string_view origin) {
  const auto origins = Origins::parse(list);
  if (!origins) return;
  HttpRequest request;
  request.method = "OPTIONS";
  request.headers = {
      {"Origin", std::string(origin)}, {"Host", "h"}, {"Access-Control-Request-Method", "POST"}};
  HttpHeaders headers;
  origins->add_headers(request, headers);
  const bool told = std::ranges::any_of(
      headers, [](const auto& h) { return h.first == "Access-Control-Allow-Origin"; });
  if (told) HOCKET_CHECK(origins->allows(request, Access::admin));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_ring(bytes);
  const size_t cut = std::min(bytes.find('\n'), size);
  check_origins(bytes.substr(0, cut), bytes.substr(std::min(cut + 1, size)));
  return 0;
}
