#include "server/ranks/relayed_story.h"

#include <utility>

#include "server/generation/answer.h"

namespace hocket {

void add_trace(const HttpRequest& request, const RequestStory* story, HttpHeaders& headers) {
  std::string parent = story != nullptr ? story->traceparent() : "";
  if (parent.empty()) parent = request.header("traceparent");
  if (parent.empty()) return;
  headers.emplace_back("traceparent", std::move(parent));
  if (const auto state = request.header("tracestate"); !state.empty())
    headers.emplace_back("tracestate", state);
}

void tell_relayed(RelayEnd how, const Relay& relay, const Answer& answer) {
  if (answer.story == nullptr) return;
  if (how == RelayEnd::answered) answer.story->answered_there(relay.status());
  if (how == RelayEnd::left) answer.story->ended(answer, kClientLeft);
  if (how == RelayEnd::failed)
    answer.story->failed(error(ErrorCode::lost_rank, "another rank broke off its answer"));
}

}  // namespace hocket
