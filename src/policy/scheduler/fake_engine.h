// The engine's loop around a real Scheduler with a model of memory instead of a model: for tests
// and simulation. Every page remembers which tokens were written to it, so that a wrong page,
// prefix, copy or length shows at once. Thread: any one.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "policy/scheduler/scheduler.h"

namespace hocket {

class FakeEngine {
 public:
  // Chooses the next token from what the request's pages hold: its tokens so far.
  using Sample = std::function<SampledToken(const Request&, std::span<const TokenId> history)>;
  // Called while the step is in flight, with its batch.
  using InFlight = std::function<void(const Batch&)>;

  FakeEngine(const SchedulerOptions& options, Sample sample)
      : scheduler_(options),
        sample_(std::move(sample)),
        page_tokens_(options.page_tokens),
        memory_(static_cast<size_t>(options.num_pages * options.page_tokens), TokenId{-1}) {}

  Scheduler& scheduler() { return scheduler_; }

  // One turn of the engine, one millisecond long. False when there was nothing to do.
  bool step(const InFlight& in_flight = {});
  // The first broken rule, for people; empty while all is well.
  const std::string& problem() const { return problem_; }
  // Time of the next step.
  TimePoint now() const { return now_; }

 private:
  size_t slot(const Request& request, int position) const {
    const PageId page = request.pages[static_cast<size_t>(position / page_tokens_)];
    return static_cast<size_t>(value(page) * page_tokens_ + position % page_tokens_);
  }
  void check(const Request& request, int begin, int end, std::string_view when);
  void forward(const Batch& batch);
  void check_pages();
  void report(std::string text) {
    if (problem_.empty()) problem_ = std::move(text);
  }

  Scheduler scheduler_;
  Sample sample_;
  int page_tokens_;
  std::vector<TokenId> memory_;  // [num_pages * page_tokens]
  std::vector<SampledToken> sampled_;
  std::string problem_;
  TimePoint now_{};
};

inline bool FakeEngine::step(const InFlight& in_flight) {
  const Batch& batch = scheduler_.schedule(now_);
  now_ += std::chrono::milliseconds(1);
  const bool busy = !batch.empty();
  if (busy) {
    forward(batch);
    if (in_flight) in_flight(batch);
    scheduler_.commit(batch, sampled_, now_);
  }
  check_pages();
  return busy;
}

inline void FakeEngine::forward(const Batch& batch) {
  int num_rows = 0;
  for (const PageCopy& copy : batch.copies)
    for (int i = 0; i < copy.tokens; ++i)
      memory_[static_cast<size_t>(value(copy.to) * page_tokens_ + i)] =
          memory_[static_cast<size_t>(value(copy.from) * page_tokens_ + i)];
  for (const Slice& slice : batch.slices) check(*slice.request, 0, slice.begin, "before the step");
  for (const Slice& slice : batch.slices) {
    const Request& request = *slice.request;
    num_rows += slice.len;
    if (slice.len < 1) report(fmt::format("request {}: a slice without rows", value(request.id)));
    if (slice.begin / page_tokens_ < request.leased_pages)
      report(fmt::format("request {} writes to a page of the tree", value(request.id)));
    for (int i = slice.begin; i < slice.begin + slice.len; ++i)
      memory_[slot(request, i)] = request.tokens[static_cast<size_t>(i)];
  }
  sampled_.clear();
  for (const Slice& slice : batch.slices) {
    const Request& request = *slice.request;
    const int end = slice.begin + slice.len;
    check(request, 0, end, "after the step");
    if (slice.samples != (end == static_cast<int>(request.tokens.size())))
      report(fmt::format("request {} samples in the wrong place", value(request.id)));
    if (!slice.samples) continue;
    std::vector<TokenId> history;
    for (int i = 0; i < end; ++i) history.push_back(memory_[slot(request, i)]);
    sampled_.push_back(sample_(request, history));
  }
  if (num_rows != batch.num_rows)
    report(fmt::format("{} rows, but the batch says {}", num_rows, batch.num_rows));
}

inline void FakeEngine::check(const Request& request, int begin, int end, std::string_view when) {
  for (int i = begin; i < end; ++i) {
    const TokenId held = memory_[slot(request, i)];
    if (held == request.tokens[static_cast<size_t>(i)]) continue;
    return report(fmt::format("request {}, {}: position {} holds token {} instead of {}",
                              value(request.id), when, i, value(held),
                              value(request.tokens[static_cast<size_t>(i)])));
  }
}

inline void FakeEngine::check_pages() {
  const SchedulerStats stats = scheduler_.stats();
  const int sum = stats.num_free_pages + stats.num_cached_pages + stats.num_private_pages;
  if (sum != stats.num_pages)
    report(fmt::format("free {} + cached {} + private {} != all {}", stats.num_free_pages,
                       stats.num_cached_pages, stats.num_private_pages, stats.num_pages));
  scheduler_.check_integrity();
}

}  // namespace hocket
