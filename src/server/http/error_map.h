// Maps an Error to an HTTP status and headers, and answers with it: the path's ErrorFormat writes
// the body. No other file knows status codes.
//
// Thread: any.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "server/http/http.h"
#include "server/http/json_body.h"

namespace hocket {

int http_status(ErrorCode code);
// Returns a stable word for programs: "context_length_exceeded", "queue_full", ...
std::string_view error_slug(ErrorCode code);
// Returns Retry-After for 429 and 503, WWW-Authenticate for 401.
HttpHeaders error_headers(ErrorCode code);

// Precondition: inside a catch block. Logs the exception as the failure of `what` and returns the
// error for the client. The exception's own text, which may quote the request, is only logged.
Error error_of_exception(std::string_view what);

// Sends the error as the whole answer, or as the last event of a stream that has begun. Returns
// false if the client has left or already has its answer.
bool respond_error(HttpExchange& exchange, const Error& error);
// Answers with the JSON and status 200, or with the error.
void respond_json(HttpExchange& exchange, const Result<Json>& answer);
// Precondition: inside a catch block. Answers with the error of error_of_exception(). Does not
// throw: without memory for an answer it does nothing, and the exchange ends when its last holder
// drops it.
void fail_by_exception(HttpExchange& exchange, std::string_view what) noexcept;

}  // namespace hocket
