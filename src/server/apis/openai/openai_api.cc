#include "server/apis/openai/openai_api.h"

#include "server/apis/openai/openai_bodies.h"
#include "server/apis/openai/openai_errors.h"
#include "server/apis/openai/openai_request.h"
#include "server/apis/openai/openai_response.h"

namespace hocket {
namespace {

Result<GenerationRequest> chat(const Json& body, const ServedModel& model, const RequestContext&) {
  return parse_chat(body, model);
}

Result<GenerationRequest> completions(const Json& body, const ServedModel& model,
                                      const RequestContext&) {
  return parse_completions(body, model);
}

}  // namespace

constinit const Api kChatApi = {.name = "chat",
                                .path = "/v1/chat/completions",
                                .id_prefix = "chatcmpl-",
                                .operation = "chat",
                                .fields = {"messages", "max_tokens", "min_tokens"},
                                .num_copies = kConversationCopies,
                                .parse = chat,
                                .format = chat_format,
                                .bodies = chat_bodies,
                                .errors = &kOpenAiErrors};

constinit const Api kCompletionsApi = {.name = "completions",
                                       .path = "/v1/completions",
                                       .id_prefix = "cmpl-",
                                       .operation = "text_completion",
                                       .fields = {"prompt", "max_tokens", "min_tokens"},
                                       .parse = completions,
                                       .format = completions_format,
                                       .bodies = completions_bodies,
                                       .errors = &kOpenAiErrors};

}  // namespace hocket
