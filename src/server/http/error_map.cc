#include "server/http/error_map.h"

#include <exception>
#include <new>

#include "base/log.h"
#include "server/http/retry_after.h"

namespace hocket {
namespace {

struct Mapping {
  ErrorCode code;
  int status;
  std::string_view slug;
};

constexpr Mapping kInternal{ErrorCode::internal, 500, "internal_error"};
constexpr Mapping kMappings[] = {
    {ErrorCode::bad_value, 400, "invalid_value"},
    {ErrorCode::invalid_request, 400, "invalid_request"},
    {ErrorCode::context_length_exceeded, 400, "context_length_exceeded"},
    {ErrorCode::request_too_big, 400, "request_too_big"},
    {ErrorCode::no_tokenizer, 400, "no_tokenizer"},
    {ErrorCode::template_failed, 400, "template_failed"},
    {ErrorCode::unauthorized, 401, "invalid_api_key"},
    {ErrorCode::forbidden, 403, "forbidden"},
    {ErrorCode::not_found, 404, "not_found"},
    {ErrorCode::method_not_allowed, 405, "method_not_allowed"},
    {ErrorCode::request_timeout, 408, "request_timeout"},
    {ErrorCode::taken_over, 409, "taken_over"},
    {ErrorCode::payload_too_large, 413, "payload_too_large"},
    {ErrorCode::queue_full, 429, "queue_full"},
    {ErrorCode::rate_limited, 429, "rate_limit_exceeded"},
    {ErrorCode::bad_logits, 500, "bad_logits"},
    {ErrorCode::timed_out, 503, "timed_out"},
    {ErrorCode::shutting_down, 503, "shutting_down"},
    {ErrorCode::loading, 503, "loading"},
    {ErrorCode::out_of_memory, 503, "out_of_memory"},
    {ErrorCode::lost_rank, 503, "lost_rank"},
    {ErrorCode::watchdog, 503, "engine_stuck"},
};

constexpr bool all_differ() {
  for (const Mapping& a : kMappings)
    for (const Mapping& b : kMappings)
      if (&a != &b && a.code == b.code) return false;
  return true;
}
static_assert(all_differ(), "a code has two lines");

const Mapping& mapping_of(ErrorCode code) {
  for (const Mapping& m : kMappings)
    if (m.code == code) return m;
  return kInternal;
}

}  // namespace

int http_status(ErrorCode code) {
  return mapping_of(code).status;
}

std::string_view error_slug(ErrorCode code) {
  return mapping_of(code).slug;
}

HttpHeaders error_headers(ErrorCode code) {
  switch (http_status(code)) {
    case 401:
      return {{"WWW-Authenticate", "Bearer"}};
    case 429:
      return {{"Retry-After", "1"}};
    case 503:
      return {{"Retry-After", "5"}};
    default:
      return {};
  }
}

Error error_of_exception(std::string_view what) {
  Error failed = error(ErrorCode::internal, "the server failed on this request");
  try {
    throw;
  } catch (const std::bad_alloc&) {
    log::error("{} failed: there was no memory", what);
    return error(ErrorCode::out_of_memory, "the server had no memory left for this request")
        .with_fix(kRetryAfterFix);
  } catch (const std::exception& e) {
    log::error("{} failed: {}", what, e.what());
    return failed;
  } catch (...) {
    log::error("{} failed: an exception of an unknown type", what);
    return failed;
  }
}

void fail_by_exception(HttpExchange& exchange, std::string_view what) noexcept {
  try {
    respond_error(exchange, error_of_exception(what));
  } catch (...) {  // NOLINT(bugprone-empty-catch): ~HttpExchange answers what was not answered
  }
}

bool respond_error(HttpExchange& exchange, const Error& error) {
  if (exchange.is_streaming())
    return exchange.write(exchange.error_format().events(error)) && exchange.finish();
  if (exchange.has_begun()) return false;
  return exchange.respond(http_status(error.code), kJsonType, exchange.error_format().body(error),
                          error_headers(error.code));
}

void respond_json(HttpExchange& exchange, const Result<Json>& answer) {
  if (answer)
    exchange.respond(200, kJsonType, to_text(*answer));
  else
    respond_error(exchange, answer.error());
}

}  // namespace hocket
