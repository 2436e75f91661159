// The requests whose prefill is done, or ends in this pass, in the order in which it ended; each
// decodes one row a step. Owner: the scheduler.   Thread: engine.   After construction nothing
// allocates.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "policy/scheduler/prefill_adder.h"
#include "policy/scheduler/request.h"

namespace hocket {

class RunningBatch {
 public:
  RunningBatch(int max_requests, int page_tokens);

  void add(std::unique_ptr<Request> request);
  std::span<const std::unique_ptr<Request>> requests() const { return requests_; }
  int size() const { return static_cast<int>(requests_.size()); }
  bool empty() const { return requests_.empty(); }
  // The first requests, of which those that decode have pages for their next rows in this step.
  std::span<const std::unique_ptr<Request>> ready() const {
    return requests().first(static_cast<size_t>(num_ready));
  }
  int num_ready = 0;  // set by schedule()

  // Return the pages that the next decode step must take, for all decoding requests and for one.
  int num_pages_needed() const;
  int num_pages_needed(const Request& request) const;
  // Returns the tokens that admitted requests may still grow by: the sum of min(new tokens left,
  // 4096), times the ratio.
  double reserved_tokens(double ratio) const;

  // Returns what each request still takes and holds, for PrefillBudget::expected. A request that
  // stops at end tokens is expected to generate `ratio` of its limit.
  std::vector<ExpectedTokens> expected_tokens(double ratio) const;

  std::unique_ptr<Request> take(const Request& request);
  // Passes every finished request to finish(std::unique_ptr<Request>); the others keep their order.
  template <class Finish>
  void take_finished(Finish&& finish);

 private:
  int page_tokens_;
  std::vector<std::unique_ptr<Request>> requests_;
};

template <class Finish>
void RunningBatch::take_finished(Finish&& finish) {
  size_t kept = 0;
  for (auto& request : requests_) {
    if (request->finish != FinishReason::none) {
      finish(std::move(request));
    } else if (&requests_[kept++] != &request) {
      requests_[kept - 1] = std::move(request);
    }
  }
  requests_.resize(kept);
}

}  // namespace hocket
