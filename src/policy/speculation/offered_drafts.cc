#include "policy/speculation/offered_drafts.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policy/speculation/draft_costs.h"
#include "policy/speculation/gate_tuning.h"

namespace hocket {

OfferedDrafts::OfferedDrafts(Options options)
    : options_(std::move(options)),
      acceptance_(options_.num_seats),
      watched_(static_cast<size_t>(options_.num_seats)),
      free_watched_(watched_.size()),
      kinds_(static_cast<size_t>(options_.num_seats)) {
  HOCKET_CHECK(options_.drafter != nullptr);
  HOCKET_CHECK((options_.max_drafts >= 1 && options_.max_drafts <= kMaxDrafts));
  HOCKET_CHECK((options_.free == nullptr || (options_.free->is_free() && drafts_ahead())));
  tasks_.reserve(watched_.size());
  free_tasks_.reserve(watched_.size());
  possible_.reserve(watched_.size());
  candidates_.reserve(DraftCosts::kNumCells + 1);
}

void OfferedDrafts::begin(int seat, int max_len) {
  options_.drafter->begin(seat, max_len);
  acceptance_.begin(seat);
  watched_[static_cast<size_t>(seat)] = free_watched_[static_cast<size_t>(seat)] = {};
  if (options_.free) options_.free->begin(seat, max_len);
}

void OfferedDrafts::end(int seat) {
  options_.drafter->end(seat);
  if (options_.free) options_.free->end(seat);
}

void OfferedDrafts::make(std::span<GateAnswer> answers) {
  HOCKET_CHECK(answers.size() <= watched_.size());
  tasks_.clear(), possible_.clear();
  for (size_t i = 0; i < answers.size(); ++i) {
    answers[i].drafts = {};
    if (answers[i].seat < 0) continue;
    tasks_.push_back(
        {.seat = answers[i].seat, .tokens = answers[i].tokens, .max_drafts = max_drafts()});
    possible_.push_back({.answer = i});
  }
  const auto make_of = [&](Drafter& drafter, auto& tasks, auto& watched) {
    drafter.draft(tasks);
    for (const DraftTask& task : tasks) compare(watched[static_cast<size_t>(task.seat)], task);
  };
  if (options_.free) free_tasks_ = tasks_;
  if (exist_before_choice()) make_of(*options_.drafter, tasks_, watched_);
  if (options_.free) make_of(*options_.free, free_tasks_, free_watched_);
}

// Once all were seen, or one that was not accepted, the new drafts take their place.
void OfferedDrafts::compare(WatchedDrafts& watched, const DraftTask& task) {
  HOCKET_CHECK(task.tokens.size() >= watched.at);
  const auto come = task.tokens.subspan(watched.at);
  const auto num_known = std::min<size_t>(come.size(), static_cast<size_t>(watched.num));
  const auto num_accepted = static_cast<size_t>(
      std::ranges::mismatch(come.first(num_known), std::span(watched.tokens).first(num_known)).in1 -
      come.begin());
  if (num_accepted == num_known && static_cast<int>(num_known) < watched.num) return;
  if (watched.num > 0)
    acceptance_.note(task.seat, watched.kind, watched.num, static_cast<int>(num_accepted));
  watched.num = static_cast<int>(task.drafts.size());
  watched.kind = task.kind;
  watched.at = task.tokens.size();
  std::ranges::copy(task.drafts, watched.tokens.begin());
}

// Returns how many of the first `num` drafts are expected to be accepted.
double OfferedDrafts::expected_of(const DraftTask& task, int num) const {
  double chance = 1, sum = 0;
  for (int i = 0; i < num; ++i) sum += chance *= acceptance_.of(task.seat, task.kind, i);
  return sum;
}

void OfferedDrafts::list(DraftSet set, std::span<const GateAnswer> answers, int max_rows) {
  for (size_t i = 0; i < possible_.size(); ++i) {
    PossibleDrafts& possible = possible_[i];
    const int room = std::clamp(answers[possible.answer].max_drafts, 0, max_drafts());
    const auto made = [room](const DraftTask& task) {
      return std::min(room, static_cast<int>(task.drafts.size()));
    };
    possible.task = &tasks_[i], possible.drafts_ahead = drafts_ahead();
    possible.num = exist_before_choice() ? made(tasks_[i]) : room;
    if (set == DraftSet::next_step)
      possible.num = options_.drafter->follows(tasks_[i].seat)
                         ? std::min(room, options_.drafter->max_drafts())
                         : 0;
    if (options_.free == nullptr) continue;
    const int num_free = made(free_tasks_[i]);
    if (set == DraftSet::free ||
        expected_of(free_tasks_[i], num_free) > expected_of(tasks_[i], possible.num))
      possible = {possible.answer, &free_tasks_[i], false, num_free};
  }
  list_candidates(max_rows);
}

// The likeliest drafts come first. Where the costs of several numbers are measured together, the
// largest number is a candidate.
void OfferedDrafts::list_candidates(int max_rows) {
  levels_.fill({});
  candidates_.clear();
  for (size_t i = 0; i < possible_.size(); ++i) {
    const DraftTask& task = *possible_[i].task;
    double chance = 1, best_case = 1;
    for (int j = 0; j < possible_[i].num; ++j) {
      const double share = acceptance_.of(task.seat, task.kind, j);
      chance *= share;
      best_case *= std::min(share + acceptance_.doubt(task.kind, j), 1.0);
      const auto level = static_cast<uint8_t>(chance * (kLevels - 1));
      possible_[i].levels[static_cast<size_t>(j)] = level;
      Level& at = levels_[level];
      ++at.num, at.accepted += chance, at.best_case += best_case;
    }
  }
  Candidate sum;
  for (int i = kLevels - 1; i >= 0 && sum.num_drafts < max_rows; --i) {
    const Level& at = levels_[static_cast<size_t>(i)];
    if (at.num == 0) continue;
    const int num = std::min(at.num, max_rows - sum.num_drafts);
    const double part = static_cast<double>(num) / at.num;
    sum = {sum.num_drafts + num, sum.accepted + part * at.accepted,
           sum.best_case + part * at.best_case};
    const bool is_new = candidates_.empty() || DraftCosts::cell_of(candidates_.back().num_drafts) !=
                                                   DraftCosts::cell_of(sum.num_drafts);
    if (is_new) candidates_.push_back(sum);
    candidates_.back() = sum;
  }
}

// Where the number is fixed, all answers have a first draft before any has a second one.
void OfferedDrafts::assign_evenly(int num_drafts) {
  int remaining = num_drafts;
  for (int position = 0; position < max_drafts(); ++position)
    for (PossibleDrafts& possible : possible_) {
      if (possible.num <= position) continue;
      if (remaining > 0)
        --remaining;
      else
        possible.num = position;
    }
}

void OfferedDrafts::assign(int num_drafts) {
  if (options_.fixed) return assign_evenly(num_drafts);
  int last = kLevels, remaining = num_drafts;  // remaining: drafts left of the level `last`
  while (last > 0 && remaining > 0) {
    const int num = levels_[static_cast<size_t>(last - 1)].num;
    --last;
    if (num >= remaining) break;
    remaining -= num;
  }
  for (size_t i = 0; i < possible_.size(); ++i) {
    int chosen = 0;
    for (; chosen < possible_[i].num; ++chosen) {
      const int level = possible_[i].levels[static_cast<size_t>(chosen)];
      if (level < last || (level == last && remaining == 0)) break;
      remaining -= level == last ? 1 : 0;
    }
    possible_[i].num = chosen;
  }
}

double OfferedDrafts::share_out(int num_drafts, std::span<GateAnswer> answers) {
  assign(num_drafts);
  double expected = 0;
  for (size_t i = 0; i < possible_.size(); ++i) {
    tasks_[i].max_drafts = possible_[i].num;
    for (int j = 0; j < possible_[i].num; ++j)
      expected += possible_[i].levels[static_cast<size_t>(j)] / (kLevels - 1.0);
  }
  if (!exist_before_choice()) options_.drafter->draft(tasks_);
  for (const PossibleDrafts& possible : possible_) {
    const DraftTask& task = *possible.task;
    const auto num = std::min(static_cast<size_t>(possible.num), task.drafts.size());
    answers[possible.answer].drafts = task.drafts.first(num);
    answers[possible.answer].kind = task.kind;
    kinds_[static_cast<size_t>(task.seat)] = task.kind;
  }
  return expected;
}

int OfferedDrafts::max_drafts_ahead() const {
  int most = 0;
  for (const PossibleDrafts& possible : possible_)
    if (possible.drafts_ahead) most = std::max(most, possible.num);
  return most;
}

void OfferedDrafts::note_answer(int seat, int num_drafts, int num_accepted) {
  HOCKET_CHECK((num_accepted >= 0 && num_accepted <= num_drafts && num_drafts <= kMaxDrafts));
  if (!exist_before_choice())
    acceptance_.note(seat, kinds_[static_cast<size_t>(seat)], num_drafts, num_accepted);
}

}  // namespace hocket
