#include "server/apis/responses/responses_api.h"

#include "server/apis/openai/openai_errors.h"
#include "server/apis/responses/responses_bodies.h"
#include "server/apis/responses/responses_request.h"
#include "server/apis/responses/responses_response.h"
#include "server/http/sse.h"

namespace hocket {
namespace {

std::string responses_error_body(const Error& error) {
  return kOpenAiErrors.body(error);
}

std::string responses_error_events(const Error& error) {
  std::string out;
  // The type of the error is also the type of the event.
  append_sse_event(out, "error", to_text(error_json(error, "error")));
  return out;
}

constinit const ErrorFormat kResponsesErrors = {responses_error_body, responses_error_events};

}  // namespace

constinit const Api kResponsesApi = {.name = "responses",
                                     .path = "/v1/responses",
                                     .id_prefix = "resp_",  // parse() makes the whole id
                                     .operation = "chat",
                                     .fields = {"input", "max_output_tokens", "min_tokens"},
                                     .num_copies = kConversationCopies,
                                     .parse = parse_responses,
                                     .format = responses_format,
                                     .bodies = responses_bodies,
                                     .errors = &kResponsesErrors,
                                     .id_at = response_id_at,
                                     .keeps_answers = true,
                                     .repeats_answer = true};

}  // namespace hocket
