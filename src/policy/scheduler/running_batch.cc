#include "policy/scheduler/running_batch.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace hocket {

RunningBatch::RunningBatch(int max_requests, int page_tokens) : page_tokens_(page_tokens) {
  requests_.reserve(static_cast<size_t>(max_requests));
}

void RunningBatch::add(std::unique_ptr<Request> request) {
  HOCKET_CHECK(requests_.size() < requests_.capacity());
  requests_.push_back(std::move(request));
}

int RunningBatch::num_pages_needed(const Request& request) const {
  if (!request.decodes()) return 0;
  const int held = static_cast<int>(request.pages.size());
  return std::max(0, pages_for(request.len(), page_tokens_) - held);
}

int RunningBatch::num_pages_needed() const {
  int sum = 0;
  for (const auto& request : requests_) sum += num_pages_needed(*request);
  return sum;
}

double RunningBatch::reserved_tokens(double ratio) const {
  int64_t tokens = 0;
  for (const auto& request : requests_)
    tokens += std::min(request->remaining_new_tokens(), kMaxReservedNewTokens);
  return static_cast<double>(tokens) * ratio;
}

std::vector<ExpectedTokens> RunningBatch::expected_tokens(double ratio) const {
  std::vector<ExpectedTokens> expected;
  expected.reserve(requests_.capacity());
  for (const auto& request : requests_) {
    const double share = request->sampling.ignore_eos ? 1.0 : ratio;
    expected.push_back({request->sampling.max_new_tokens * share - request->generated(),
                        static_cast<int>(request->tokens.size())});
  }
  return expected;
}

std::unique_ptr<Request> RunningBatch::take(const Request& request) {
  const auto it = std::find_if(requests_.begin(), requests_.end(),
                               [&](const auto& r) { return r.get() == &request; });
  HOCKET_CHECK(it != requests_.end());
  std::unique_ptr<Request> owned = std::move(*it);
  requests_.erase(it);
  return owned;
}

}  // namespace hocket
