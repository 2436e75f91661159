#include "server/ranks/relayed_request.h"

#include <utility>

#include "server/generation/answer.h"

namespace hocket {

void add_trace(const HttpRequest& request, const RequestRecorder* recorder, HttpHeaders& headers) {
  std::string parent = recorder != nullptr ? recorder->traceparent() : "";
  if (parent.empty()) parent = request.header("traceparent");
  if (parent.empty()) return;
  headers.emplace_back("traceparent", std::move(parent));
  if (const auto state = request.header("tracestate"); !state.empty())
    headers.emplace_back("tracestate", state);
}

void record_relayed(RelayEnd how, const Relay& relay, RequestRecorder& recorder) {
  if (how == RelayEnd::answered) recorder.set_remote_status(relay.status());
  if (how == RelayEnd::left) recorder.ended(Answer(), kClientLeft);  // this rank knows no choice
  if (how == RelayEnd::failed)
    recorder.failed(
        error(ErrorCode::lost_rank, "the rank that computed the answer closed the connection"));
}

}  // namespace hocket
