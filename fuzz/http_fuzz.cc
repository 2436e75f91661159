// Fuzzes the parts of a request's head that hocket parses itself: target and key. Decoded paths are
// valid UTF-8 without control characters, and encoding and decoding them again changes nothing.
#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/access/api_key.h"
#include "server/apis/openai/openai_errors.h"
#include "server/http/request_target.h"

using namespace hocket;

namespace {

std::string encode(std::string_view path) {
  std::string out;
  for (const char c : path)
    out += c == '/' ? "/" : fmt::format("%{:02x}", static_cast<unsigned char>(c));
  return out;
}

void check_target(std::string_view bytes) {
  const auto target = parse_request_target(bytes);
  if (!target) {
    HOCKET_CHECK(!target.error().message.empty());
    HOCKET_CHECK(is_valid_utf8(kOpenAiErrors.body(target.error())));
    return;
  }
  HOCKET_CHECK(target->path.starts_with('/'));
  HOCKET_CHECK(is_valid_utf8(target->path));
  HOCKET_CHECK(std::ranges::none_of(target->path, [](unsigned char c) { return c < 32; }));
  HOCKET_CHECK(target->path.size() + target->query.size() <= bytes.size() + 1);
  const auto again = parse_request_target(encode(target->path) + "?" + target->query);
  HOCKET_CHECK(again.has_value());
  HOCKET_CHECK(again->path == target->path && again->query == target->query);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_target(bytes);

  const size_t cut = std::min(bytes.find('\n'), size);
  HttpRequest request;
  request.path = "/v1/models";
  request.headers = {{"Authorization", std::string(bytes.substr(0, cut))}};
  const std::string key(bytes.substr(std::min(cut + 1, size)));
  const bool expected = !key.empty() && request.headers[0].second.ends_with(key);
  if (!key.empty() && same_key(given_key(request), key)) HOCKET_CHECK(expected);
  if (!key.empty() && key.front() != ' ') {
    request.headers[0].second = "Bearer " + key;
    HOCKET_CHECK(same_key(given_key(request), key));
  }
  return 0;
}
