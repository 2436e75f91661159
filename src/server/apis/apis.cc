#include "server/apis/apis.h"

#include "server/apis/anthropic/messages_api.h"
#include "server/apis/openai/openai_api.h"
#include "server/apis/openai/openai_errors.h"
#include "server/apis/responses/responses_api.h"
#include "server/apis/sglang/generate_api.h"

namespace hocket {

std::span<const Api* const> all_apis() {
  static constexpr const Api* kApis[] = {&kChatApi, &kCompletionsApi, &kGenerateApi, &kMessagesApi,
                                         &kResponsesApi};
  return kApis;
}

const ErrorFormat& error_format_of(std::string_view path) {
  for (const Api* api : all_apis())
    if (path.starts_with(api->path)) return *api->errors;
  return kOpenAiErrors;
}

}  // namespace hocket
