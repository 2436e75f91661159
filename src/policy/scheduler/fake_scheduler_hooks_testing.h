// SchedulerHooks whose answers are set by the test. Thread: any one.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "policy/scheduler/scheduler_hooks.h"

namespace hocket {

struct FakeSchedulerHooks final : SchedulerHooks {
  std::set<RequestId> not_ready, broken;
  std::set<RequestId> again;  // those that are not ready once more when they would begin
  std::map<RequestId, std::vector<TokenId>> drafts;  // for the next step of each
  DraftedStep drafted{.max_rows = -1};               // as the last offer_drafts() said
  bool others_compute = false, nobody_begins = false, peers_need_windows = false;
  std::vector<int> borders_asked;  // those that needs_windows() was asked for
  int num_agreements = 0, num_rows_agreed = 0;
  ForwardMode mode_agreed = ForwardMode::idle;  // mode of the last batch agreed on

  Result<bool> ready(const Request& request) override {
    if (broken.contains(request.id))
      return fail(ErrorCode::invalid_request, "its grammar does not compile");
    return !not_ready.contains(request.id);
  }
  bool waits_again(const Request& request) override {
    if (again.erase(request.id) == 0) return false;
    return not_ready.insert(request.id).second;
  }
  bool may_begin() override { return !nobody_begins; }
  bool needs_windows(const Request& /*request*/, int border) override {
    borders_asked.push_back(border);
    return peers_need_windows;
  }
  void offer_drafts(std::span<AnswerDrafts> answers, const DraftedStep& step) override {
    drafted = step;
    offered_.clear();
    for (AnswerDrafts& answer : answers) {
      const auto given = drafts.extract(answer.request->id);
      if (given.empty()) continue;
      const std::vector<TokenId>& mine = offered_.emplace_back(given.mapped());
      answer.drafts =
          std::span(mine).first(std::min(mine.size(), static_cast<size_t>(answer.max_drafts)));
    }
  }
  bool any_rank_computes(const Batch& mine) override {
    ++num_agreements;
    num_rows_agreed += mine.num_rows;
    mode_agreed = mine.mode;
    return others_compute;
  }

 private:
  std::deque<std::vector<TokenId>> offered_;  // the scheduler has yet to copy them
};

}  // namespace hocket
