#include "server/http/request_target.h"

#include <simdjson.h>

#include <algorithm>

namespace hocket {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// Returns the byte where the authority of an absolute target begins; 0 if the target has another
// form.
size_t begin_of_authority(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (same_name(target.substr(0, scheme.size()), scheme)) return scheme.size();
  return 0;
}

Result<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
    if (high < 0 || low < 0)
      return fail(ErrorCode::invalid_request,
                  "the path has a '%' without two hex digits, at byte {}", i);
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

}  // namespace

std::string encode_path(std::string_view path) {
  constexpr std::string_view kPlain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~!$&'()*+,;=:@/";
  std::string out;
  for (const char c : path) {
    if (kPlain.find(c) != kPlain.npos)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

bool is_valid_utf8(std::string_view bytes) {
  return simdjson::validate_utf8(bytes.data(), bytes.size());
}

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const size_t equals = pair.find('=');
    if (pair.substr(0, equals) == name && equals != pair.npos) return pair.substr(equals + 1);
  }
  return {};
}

std::string_view authority_of(std::string_view target) {
  const size_t begin = begin_of_authority(target);
  if (begin == 0) return {};
  std::string_view authority = target.substr(begin);
  authority = authority.substr(0, authority.find_first_of("/?"));
  if (const size_t at = authority.rfind('@'); at != authority.npos) authority.remove_prefix(at + 1);
  return authority;
}

Result<RequestTarget> parse_request_target(std::string_view target) {
  if (target == "*") return RequestTarget{"/", ""};
  if (const size_t begin = begin_of_authority(target); begin > 0) {
    const size_t path = std::min(target.find_first_of("/?", begin), target.size());
    return parse_request_target((target.substr(path).starts_with('/') ? "" : "/") +
                                std::string(target.substr(path)));
  }
  if (!target.starts_with('/'))
    return fail(ErrorCode::invalid_request, "the request's target does not begin with '/'");
  const size_t mark = std::min(target.find('?'), target.size());
  HOCKET_TRY(std::string path, percent_decode(target.substr(0, mark)));
  if (!is_valid_utf8(path)) return fail(ErrorCode::invalid_request, "the path is not valid UTF-8");
  if (std::any_of(path.begin(), path.end(), [](unsigned char c) { return c < 32 || c == 127; }))
    return fail(ErrorCode::invalid_request, "the path has a control character");
  return RequestTarget{std::move(path),
                       std::string(target.substr(std::min(mark + 1, target.size())))};
}

}  // namespace hocket
