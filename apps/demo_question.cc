#include "apps/demo_question.h"

#include <nlohmann/json.hpp>

#include "client/blocking_http_client.h"

namespace hocket {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

Result<DemoAnswer> ask_for_tokens(const RunningServer& running, const DemoQuestion& question) {
  BlockingHttpClient client(
      {.port = running.server->port(), .api_key = "", .timeout_s = kDemoPatienceSeconds});
  const Json body = {{"messages", {{{"role", "user"}, {"content", question.text}}}},
                     {"temperature", 0},
                     {"max_tokens", question.max_tokens},
                     {"ignore_eos", question.ignore_eos},
                     {"logprobs", true}};
  HOCKET_TRY(const HttpAnswer answer, client.post("/v1/chat/completions", body.dump()));
  const Json parsed = Json::parse(answer.body, nullptr, false);
  const Json tokens = parsed.value("/choices/0/logprobs/content"_json_pointer, Json());
  const auto num_tokens = static_cast<int>(tokens.size());
  const bool whole = tokens.is_array() && num_tokens > 0 &&
                     (!question.ignore_eos || num_tokens == question.max_tokens);
  if (answer.status != 200 || !whole)
    return fail(ErrorCode::internal, "the demo's question got status {}: {}", answer.status,
                answer.body);
  return DemoAnswer{tokens.dump(), num_tokens};
}

}  // namespace hocket
