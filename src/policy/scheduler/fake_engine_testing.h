// The engine's loop around a real Scheduler, with a model of memory instead of a language model;
// for tests and simulation. Every page remembers the tokens that were written to it, so that a
// wrong page, prefix, copy or length shows at once. If overlapped, each step is computed before the
// step before it is committed, except behind a step with drafts. Thread: any one.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policy/scheduler/fake_states_testing.h"
#include "policy/scheduler/fake_windows_testing.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

// Makes a prompt that shares no token with the prompts of other ids.
inline RequestInput numbered_input(uint64_t id, int prompt_len, int max_new_tokens) {
  RequestInput input;
  input.id = RequestId{id};
  for (int i = 0; i < prompt_len; ++i)
    input.prompt.push_back(TokenId{static_cast<int>(id) * 1000 + i});
  input.sampling.max_new_tokens = max_new_tokens;
  return input;
}

class FakeEngine {
 public:
  // Chooses the next token from `history`, the tokens in the request's pages. If overlapped, the
  // request itself may not have the last of them yet.
  using Sample = std::function<SampledToken(const Request&, std::span<const TokenId> history)>;
  // Called while the step is in flight, with its batch.
  using InFlight = std::function<void(const Batch&)>;

  FakeEngine(const SchedulerOptions& options, Sample sample, bool overlapped = false)
      : scheduler_(options),
        sample_(std::move(sample)),
        overlapped_(overlapped),
        page_tokens_(options.page_tokens),
        states_(options),
        windows_(options),
        memory_(static_cast<size_t>(options.num_pages * options.page_tokens), TokenId{-1}),
        begins_(options.answer_begins),
        ends_(options.eos_ids),
        one_form_(options.cache_whole_answers),
        absorbed_(memory_.size(), 0) {}

  Scheduler& scheduler() { return scheduler_; }
  // Sets the durations that the scheduler is told for its steps; without this, 1 ms each.
  void time_steps(std::function<Duration(const Batch&)> step_time) {
    step_time_ = std::move(step_time);
  }

  // If overlapped: `settles` says before each step if the one before is committed first, so that
  // the step may have drafts. Without this, only steps with drafts are.
  void settle_steps(std::function<bool()> settles) { settles_ = std::move(settles); }

  // Gives the tree the last pages, at most `max_pages`, of a sequence of whole pages, as they are
  // read from a slower tier; a step in flight is committed first. Returns false if the tree does
  // not want them.
  bool restore_pages(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                     int max_pages) {
    if (last_.batch != nullptr) commit(std::exchange(last_, {}));
    const auto size = static_cast<size_t>(page_tokens_);
    std::vector<uint8_t> forms;
    AbsorbedRows rows(begins_, ends_);
    for (const TokenId token : tokens) forms.push_back(rows.take(token) ? 1 : 0);
    return scheduler_.restore(name_space, tokens, max_pages, [&](std::span<const PageId> pages) {
      auto from = tokens.last(pages.size() * size);
      auto form = std::span<const uint8_t>(forms).last(from.size());
      for (const PageId page : pages) {
        const auto to = static_cast<size_t>(value(page)) * size;
        std::copy_n(from.begin(), size, memory_.begin() + static_cast<ptrdiff_t>(to));
        std::copy_n(form.begin(), size, absorbed_.begin() + static_cast<ptrdiff_t>(to));
        from = from.subspan(size);
        form = form.subspan(size);
      }
    });
  }
  // The same for the state, or the window, behind whole pages that the tree has.
  bool restore_state(const CacheNamespace& name_space, std::span<const TokenId> tokens) {
    if (last_.batch != nullptr) commit(std::exchange(last_, {}));
    return scheduler_.restore_state(name_space, tokens,
                                    [&](int slot) { states_.fill(slot, tokens); });
  }
  bool restore_window(const CacheNamespace& name_space, std::span<const TokenId> tokens) {
    if (last_.batch != nullptr) commit(std::exchange(last_, {}));
    const auto size = static_cast<size_t>(page_tokens_);
    const auto first = static_cast<size_t>(windows_.first_seen(static_cast<int>(tokens.size())));
    return scheduler_.restore_window(name_space, tokens, [&](int index, PageId page) {
      windows_.fill(page, tokens.subspan((first + static_cast<size_t>(index)) * size, size));
    });
  }

  // Runs one turn of the engine, one millisecond long. Returns false when there was nothing to do.
  bool step(const InFlight& in_flight = {});
  // Plays a step that fails: its rows are garbage, and the scheduler undoes it. A step in flight
  // fails with it if `both`, and is passed to `undone`; else it is committed first. Returns how
  // many requests were put back.
  uint64_t fail_step(const Error& why, bool both, const InFlight& undone);
  // Returns a description of the first broken rule; empty while there is none.
  const std::string& problem() const { return problem_; }
  // The time of the next step.
  TimePoint now() const { return now_; }

 private:
  // A computed batch and its samples.
  struct Step {
    const Batch* batch = nullptr;
    std::vector<SampledToken> sampled;
  };

  size_t slot(const Request& request, int position) const {
    const PageId page = request.pages[static_cast<size_t>(position / page_tokens_)];
    return static_cast<size_t>(value(page) * page_tokens_ + position % page_tokens_);
  }
  TokenId token(const Slice& slice, int position) const {
    if (slice.pending_sample < 0 || position < static_cast<int>(slice.request->tokens.size()))
      return slice.token(position);
    return last_.sampled.at(static_cast<size_t>(slice.pending_sample)).token;
  }
  // Returns 1 if the row has the absorbed form of latents.
  static uint8_t is_absorbed(const Request& request, int position) {
    if (position >= request.prompt_len) return 1;
    const std::vector<int>& borders = request.form_borders;
    return (std::ranges::upper_bound(borders, position) - borders.begin()) % 2 == 1 ? 1 : 0;
  }
  void check(const Slice& slice, int end, std::string_view when);
  void forward(Step& step);
  void sample(const Slice& slice, std::vector<SampledToken>& sampled);
  void compute_states(const Batch& batch);
  void compute_windows(const Batch& batch);
  void commit(Step step);
  void check_pages();
  void report(std::string text) {
    if (problem_.empty()) problem_ = std::move(text);
  }

  Scheduler scheduler_;
  Sample sample_;
  std::function<Duration(const Batch&)> step_time_;
  std::function<bool()> settles_;
  bool overlapped_;
  int page_tokens_;
  FakeStates states_;
  FakeWindows windows_;
  std::vector<TokenId> memory_;  // [num_pages * page_tokens]
  const std::vector<TokenId> begins_, ends_;
  const bool one_form_;            // all rows have the same form
  std::vector<uint8_t> absorbed_;  // [num_pages * page_tokens]
  Step last_;                      // if overlapped: computed, but not committed
  std::string problem_;
  TimePoint now_{};
};

inline bool FakeEngine::step(const InFlight& in_flight) {
  const bool one_computes = last_.batch != nullptr;
  if (one_computes && (last_.batch->num_drafts > 0 || (settles_ && settles_())))
    commit(std::exchange(last_, {}));
  Step step{.batch = &scheduler_.schedule(now_), .sampled = {}};
  now_ += std::chrono::milliseconds(1);
  const bool busy = !step.batch->empty() || one_computes;
  if (!step.batch->empty()) {
    forward(step);
    if (in_flight) in_flight(*step.batch);
  } else {
    step.batch = nullptr;
  }
  if (overlapped_) std::swap(step, last_);
  if (step.batch != nullptr) commit(std::move(step));
  check_pages();
  return busy;
}

inline uint64_t FakeEngine::fail_step(const Error& why, bool both, const InFlight& undone) {
  if (last_.batch != nullptr && (!both || last_.batch->num_drafts > 0))
    commit(std::exchange(last_, {}));
  const Batch& batch = scheduler_.schedule(now_);
  now_ += std::chrono::milliseconds(1);
  const Batch* const before = std::exchange(last_, {}).batch;
  for (const Batch* failed : {before, batch.empty() ? nullptr : &batch}) {
    if (failed == nullptr) continue;
    for (const Slice& slice : failed->slices)
      for (int i = slice.begin; i < slice.begin + slice.len; ++i)
        memory_[slot(*slice.request, i)] = TokenId{-2};
  }
  if (before != nullptr) undone(*before);
  const int num_put_back = scheduler_.undo_steps(why, now_);
  check_pages();
  return static_cast<uint64_t>(num_put_back);
}

inline void FakeEngine::commit(Step step) {
  scheduler_.note_duration(*step.batch,
                           step_time_ ? step_time_(*step.batch) : std::chrono::milliseconds(1));
  scheduler_.commit(*step.batch, step.sampled, now_);
}

inline void FakeEngine::forward(Step& step) {
  const Batch& batch = *step.batch;
  int num_rows = 0;
  for (const PageCopy& copy : batch.copies)
    for (int i = 0; i < copy.tokens; ++i) {
      const auto to = static_cast<size_t>(value(copy.to) * page_tokens_ + i);
      const auto from = static_cast<size_t>(value(copy.from) * page_tokens_ + i);
      memory_[to] = memory_[from], absorbed_[to] = absorbed_[from];
    }
  for (const Slice& slice : batch.slices) check(slice, slice.begin, "before the step");
  if (states_.enabled()) compute_states(batch);
  if (windows_.enabled()) compute_windows(batch);
  for (const Slice& slice : batch.slices) {
    const Request& request = *slice.request;
    num_rows += slice.len;
    if (slice.len < 1) report(fmt::format("request {}: a slice without rows", value(request.id)));
    if (slice.begin / page_tokens_ < request.leased_pages)
      report(fmt::format("request {} writes to a page of the tree", value(request.id)));
    for (int i = slice.begin; i < slice.begin + slice.len; ++i) {
      memory_[slot(request, i)] = token(slice, i);
      absorbed_[slot(request, i)] = is_absorbed(request, i);
    }
  }
  for (const Slice& slice : batch.slices) {
    const Request& request = *slice.request;
    const int end = slice.begin + slice.len;
    check(slice, end, "after the step");
    const int known = static_cast<int>(request.tokens.size()) + (slice.pending_sample >= 0 ? 1 : 0);
    if (slice.is_sampled != (end - slice.num_drafts == known))
      report(fmt::format("request {} samples in the wrong place", value(request.id)));
    if (slice.is_sampled) sample(slice, step.sampled);
  }
  if (num_rows != batch.num_rows)
    report(fmt::format("{} rows, but the batch says {}", num_rows, batch.num_rows));
}

// Samples behind the last known token and behind each draft, up to the first that is not accepted.
inline void FakeEngine::sample(const Slice& slice, std::vector<SampledToken>& sampled) {
  const int first = slice.begin + slice.len - slice.num_drafts;
  std::vector<TokenId> history;
  for (int i = 0; i < first; ++i) history.push_back(memory_[slot(*slice.request, i)]);
  bool holds = true;
  for (int i = 0; i <= slice.num_drafts; ++i) {
    SampledToken& token = sampled.emplace_back();
    if (!holds) continue;
    token = sample_(*slice.request, history);
    holds = i < slice.num_drafts && token.token == slice.token(first + i) &&
            token.grammar == GrammarVerdict::may_continue && !token.failed;
    if (!holds) continue;
    token.forced = {};
    history.push_back(memory_[slot(*slice.request, first + i)]);
  }
}

inline void FakeEngine::compute_states(const Batch& batch) {
  const std::string wrong = states_.check(batch);
  if (!wrong.empty()) report(wrong);
  for (const Slice& slice : batch.slices) {
    std::vector<TokenId> history;
    for (int i = 0; i < slice.begin + slice.len; ++i) history.push_back(token(slice, i));
    const std::string problem = states_.forward(slice, history);
    if (!problem.empty()) report(fmt::format("request {}: {}", value(slice.request->id), problem));
  }
}

inline void FakeEngine::compute_windows(const Batch& batch) {
  windows_.copy(batch);
  std::vector<std::vector<TokenId>> histories;
  for (const Slice& slice : batch.slices) {
    std::vector<TokenId>& history = histories.emplace_back();
    for (int i = 0; i < slice.begin + slice.len; ++i) history.push_back(token(slice, i));
  }
  const std::string problem = windows_.forward(batch, histories, overlapped_);
  if (!problem.empty()) report(problem);
}

inline void FakeEngine::check(const Slice& slice, int end, std::string_view when) {
  for (int i = 0; i < end; ++i) {
    const size_t at = slot(*slice.request, i);
    const TokenId held = memory_[at];
    if (!one_form_ && absorbed_[at] != is_absorbed(*slice.request, i))
      return report(fmt::format("request {}, {}: position {} has another form of latents",
                                value(slice.request->id), when, i));
    if (held == token(slice, i)) continue;
    return report(fmt::format("request {}, {}: position {} holds token {} instead of {}",
                              value(slice.request->id), when, i, value(held),
                              value(token(slice, i))));
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
