#include "server/http/request_head.h"

#include <algorithm>
#include <utility>

#include "server/http/error_map.h"
#include "server/http/request_target.h"

namespace hocket {
namespace {

Error bad_head(std::string_view why) {
  return error(ErrorCode::invalid_request, "this is not HTTP/1.1: {} in the head", why);
}

// Refuses a target whose host differs from Host. RFC 9112 §3.2.2 puts the target's host in the
// place of Host, which the access check reads. Only HTTP/1.0 may lack Host.
std::optional<Refusal> refused_host(std::string_view target, std::string_view host) {
  const std::string_view authority = authority_of(target);
  if (authority.empty() || same_name(authority, host)) return std::nullopt;
  return refusal(
      error(ErrorCode::invalid_request, "the target is of '{}', and Host is '{}'", authority, host)
          .with_fix("send the same host in both, or a target that begins with '/'"));
}

bool has_body(const HttpHeaders& headers) {
  return std::ranges::any_of(headers, [](const auto& header) {
    const auto& [name, value] = header;
    return same_name(name, "transfer-encoding") ||
           (same_name(name, "content-length") && value.find_first_not_of('0') != value.npos);
  });
}

// Refuses compressed bodies: bodies are not decompressed, so such a body would look like bad JSON.
std::optional<Refusal> refused_coding(const HttpHeaders& headers) {
  const bool is_packed = std::ranges::any_of(headers, [](const auto& header) {
    const auto& [name, value] = header;
    return same_name(name, "content-encoding") && !value.empty() && !same_name(value, "identity");
  });
  if (!is_packed || !has_body(headers)) return std::nullopt;
  return Refusal{.status = 415,
                 .error = error(ErrorCode::invalid_request,
                                "the Content-Encoding is not known: only identity is")
                              .with_fix("send the body as it is, without Content-Encoding")};
}

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

}  // namespace

Refusal refusal(Error e) {
  return {.status = http_status(e.code), .error = std::move(e)};
}

Result<size_t> HeadScan::find_end(std::string_view bytes) {
  for (; num_seen_ < bytes.size(); ++num_seen_) {
    const auto c = static_cast<unsigned char>(bytes[num_seen_]);
    const bool after_return = num_seen_ > line_begin_ && bytes[num_seen_ - 1] == '\r';
    if (after_return != (c == '\n')) return fail(bad_head("a CR without LF, or LF without CR,"));
    if (c == 127 || (c < 32 && c != '\t' && c != '\r' && c != '\n'))
      return fail(bad_head("a control character"));
    if (c != '\n') continue;
    const std::string_view line = bytes.substr(line_begin_, num_seen_ - 1 - line_begin_);
    if (line.empty()) return num_seen_ + 1;
    HOCKET_TRY_VOID(end_line(line));
    line_begin_ = num_seen_ + 1;
  }
  return 0;
}

Result<void> HeadScan::end_line(std::string_view line) {
  if (num_lines_ > 0 && is_blank(line.front())) return fail(bad_head("a folded line"));
  if (num_lines_++ < 1 + kMaxHeaderFields) return {};
  return fail(error(ErrorCode::payload_too_large, "the head has more than {} header fields",
                    kMaxHeaderFields));
}

std::optional<Refusal> refused_head(const ParsedHead& head, const HttpHeaders& headers) {
  if (head.target == "*" && head.method != "OPTIONS")
    return refusal(error(ErrorCode::invalid_request, "the target '*' is for OPTIONS alone"));
  const auto is_host = [](const auto& header) { return same_name(header.first, "host"); };
  const auto num_hosts = std::ranges::count_if(headers, is_host);
  if (num_hosts > 1 || (num_hosts == 0 && !head.http_1_0)) {
    return refusal(
        error(ErrorCode::invalid_request, "the head has {} Host lines, it needs one", num_hosts));
  }
  if (const auto host = std::ranges::find_if(headers, is_host); host != headers.end())
    if (auto refused = refused_host(head.target, host->second)) return refused;
  for (const auto& [name, value] : headers) {
    if (!same_name(name, "transfer-encoding")) continue;
    if (head.http_1_0)
      return refusal(error(ErrorCode::invalid_request, "HTTP/1.0 has no Transfer-Encoding"));
    if (!same_name(value, "chunked"))
      return Refusal{.status = 501,
                     .error = error(ErrorCode::invalid_request,
                                    "the Transfer-Encoding is not known: only chunked is")};
  }
  return refused_coding(headers);
}

}  // namespace hocket
