#include "engine/stats/recent_steps.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/mutex.h"
#include "compute/overlap/plan.h"

namespace hocket {

struct RecentSteps::Tape {
  struct RecordedStep {
    Mutex mutex;
    // Rises with every note of the rank; 0: the slot is empty.
    uint64_t turn HOCKET_GUARDED_BY(mutex) = 0;
    StepAccount account HOCKET_GUARDED_BY(mutex);
    std::vector<LedgerSpan> spans HOCKET_GUARDED_BY(mutex);
    size_t num_left_out HOCKET_GUARDED_BY(mutex) = 0;
  };

  std::array<RecordedStep, kSteps> slots;
  size_t next = 0;    // touched by the engine's thread only
  uint64_t turn = 0;  // touched by the engine's thread only
};

RecentSteps::RecentSteps(Options options) : options_(std::move(options)) {
  for (int i = 0; i < options_.num_here; ++i) {
    tapes_.push_back(std::make_unique<Tape>());
    for (Tape::RecordedStep& slot : tapes_.back()->slots)
      slot.spans.reserve(std::min(kMaxSpans, options_.spans_per_step));
  }
}

RecentSteps::~RecentSteps() = default;

void RecentSteps::note(int rank, Ledger& ledger) {
  ledger.keep_spans(true);
  if (!ledger.account().has_pass) return;
  Tape& tape = *tapes_.at(static_cast<size_t>(rank - options_.first_rank));
  Tape::RecordedStep* slot = &tape.slots.at(tape.next);
  if (!slot->mutex.try_lock()) return;
  const MutexLock lock(slot->mutex, std::adopt_lock);
  tape.next = (tape.next + 1) % kSteps;
  slot->turn = ++tape.turn;
  slot->account = ledger.account();
  if (options_.num_ranks == 1) slot->account.step = tape.turn;
  const std::span<const LedgerSpan> spans = ledger.spans();
  const size_t kept = std::min(spans.size(), slot->spans.capacity());
  slot->num_left_out = spans.size() - kept;
  slot->spans.assign(spans.begin(), spans.begin() + static_cast<ptrdiff_t>(kept));
}

std::vector<RecentSteps::RankSteps> RecentSteps::copy(Content content,
                                                      std::optional<uint64_t> number) const {
  std::vector<RankSteps> all;
  for (size_t i = 0; i < tapes_.size(); ++i) {
    std::vector<std::pair<uint64_t, Step>> found;
    for (Tape::RecordedStep& slot : tapes_[i]->slots) {
      const MutexLock lock(slot.mutex);
      if (slot.turn == 0 || slot.account.step != number.value_or(slot.account.step)) continue;
      Step& step = found.emplace_back(slot.turn, Step()).second;
      step.number = slot.account.step;
      step.account = slot.account;
      step.num_left_out = slot.num_left_out;
      if (content == Content::spans) step.spans = slot.spans;
    }
    std::ranges::sort(found, {}, &std::pair<uint64_t, Step>::first);
    RankSteps& rank = all.emplace_back();
    rank.rank = options_.first_rank + static_cast<int>(i);
    for (auto& [turn, step] : found) {
      if (options_.orders != nullptr) step.plan = describe(step.account.plan, *options_.orders);
      rank.steps.push_back(std::move(step));
    }
  }
  return all;
}

std::vector<RecentSteps::RankSteps> RecentSteps::accounts() const {
  return copy(Content::accounts, std::nullopt);
}

std::vector<RecentSteps::RankSteps> RecentSteps::steps(std::optional<uint64_t> number) const {
  return copy(Content::spans, number);
}

Result<std::string> RecentSteps::trace() const {
  std::vector<TraceTape> tapes;
  for (const RankSteps& rank : steps(std::nullopt)) {
    TraceTape& tape = tapes.emplace_back();
    tape.rank = rank.rank;
    for (const Step& step : rank.steps) {
      tape.spans.insert(tape.spans.end(), step.spans.begin(), step.spans.end());
      tape.steps.push_back({.account = step.account, .end_span = tape.spans.size()});
    }
  }
  return trace_text(
      {.model = options_.model, .num_ranks = options_.num_ranks, .orders = options_.orders}, tapes);
}

}  // namespace hocket
