#include "server/apis/openai/openai_errors.h"

#include <string>

#include "server/http/error_map.h"
#include "server/http/sse.h"

namespace hocket {
namespace {

std::string_view openai_error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

constexpr size_t kMaxErrorText = 2048;  // bytes; the text may quote the client

std::string bounded_text(const std::string& text) {
  return text.size() <= kMaxErrorText ? text : text.substr(0, kMaxErrorText) + "...";
}

std::string openai_error_body(const Error& error) {
  return to_text(Json{{"error", error_json(error, openai_error_type(http_status(error.code)))}});
}

std::string openai_error_events(const Error& error) {
  std::string out;
  append_sse(out, openai_error_body(error));
  out += kSseDoneEvent;
  return out;
}

}  // namespace

constinit const ErrorFormat kOpenAiErrors = {openai_error_body, openai_error_events};

Json error_json(const Error& error, std::string_view type) {
  const auto text_or_null = [](const std::string& s) {
    return s.empty() ? Json() : Json(bounded_text(s));
  };
  return {{"message", bounded_text(error.message)}, {"type", type},
          {"param", text_or_null(error.param)},     {"code", error_slug(error.code)},
          {"hint", text_or_null(error.fix)},        {"doc", "docs/api.md#errors"}};
}

}  // namespace hocket
