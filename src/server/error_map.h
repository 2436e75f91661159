// What an Error looks like to an HTTP client: the only place that knows status codes and error
// bodies.
//
//   {"error": {"message", "type", "param", "code", "hint", "doc"}}     OpenAI's form, plus hint and
//   doc
//
// Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http.h"

namespace hocket {

int http_status(ErrorCode code);
// Stable words for programs: "context_length_exceeded", "queue_full", ...
std::string_view error_slug(ErrorCode code);
// The JSON body. Bytes of the message that are no UTF-8 are replaced.
std::string error_body(const Error& error);
// Retry-After with 429 and 503, WWW-Authenticate with 401.
HttpHeaders error_headers(ErrorCode code);

// The whole answer. False when the client has left.
bool respond_error(HttpExchange& exchange, const Error& error);

}  // namespace hocket
