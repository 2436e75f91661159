#include "server/apis/anthropic/messages_api.h"

#include "server/apis/anthropic/messages_bodies.h"
#include "server/apis/anthropic/messages_request.h"
#include "server/apis/anthropic/messages_response.h"
#include "server/apis/openai/openai_errors.h"
#include "server/http/error_map.h"
#include "server/http/sse.h"

namespace hocket {
namespace {

Result<GenerationRequest> parse(const Json& body, const ServedModel& model, const RequestContext&) {
  return parse_messages(body, model);
}

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

std::string error_body(const Error& error) {
  const std::string_view type = error_type(http_status(error.code));
  return to_text(Json{{"type", "error"}, {"error", error_json(error, type)}});
}

std::string error_events(const Error& error) {
  std::string out;
  append_sse_event(out, "error", error_body(error));
  return out;
}

constinit const ErrorFormat kErrors = {error_body, error_events};

}  // namespace

constinit const Api kMessagesApi = {.name = "messages",
                                    .path = "/v1/messages",
                                    .id_prefix = "msg_",
                                    .operation = "chat",
                                    .fields = {"messages", "max_tokens", "min_tokens"},
                                    .num_copies = kConversationCopies,
                                    .parse = parse,
                                    .format = messages_format,
                                    .bodies = messages_bodies,
                                    .errors = &kErrors};

}  // namespace hocket
