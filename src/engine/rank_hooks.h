// Answers the questions of a rank's scheduler (policy/scheduler/scheduler_hooks.h) about grammars
// that are being compiled, pages that are being read, drafts and the other ranks. Thread: engine.
#pragma once

#include "engine/cache_tier.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/speculation.h"
#include "policy/scheduler/scheduler_hooks.h"

namespace hocket {

class RankHooks final : public SchedulerHooks {
 public:
  // All arguments outlive it. `speculation` is null if there are no drafts, `others` on the only
  // rank.
  RankHooks(RankGrammars& grammars, Speculation* speculation, SchedulerHooks* others)
      : grammars_(grammars), speculation_(speculation), others_(others) {}

  // The scheduler's prefix cache has a second tier from here on; both outlive this.
  void attach(CacheTier& tier, const Scheduler& scheduler) {
    tier_ = &tier;
    scheduler_ = &scheduler;
  }

  Result<bool> ready(const Request& request) override {
    const bool has_pages = tier_ == nullptr || tier_->ready(request, *scheduler_);
    const Result<bool> has_grammar = grammars_.ready(request);
    return has_grammar && *has_grammar ? has_pages : has_grammar;
  }
  bool may_begin() override { return others_ == nullptr || others_->may_begin(); }
  void offer_drafts(std::span<AnswerDrafts> answers, int most_rows) override {
    if (speculation_ != nullptr) speculation_->offer(answers, most_rows);
  }
  void on_pages_cached(const Request& request) override {
    if (tier_ != nullptr) tier_->on_pages_cached(request, *scheduler_);
  }
  void on_state_cached(const Request& request, int len, int slot) override {
    if (tier_ != nullptr) tier_->on_state_cached(request, len, slot);
  }
  bool any_rank_computes(const Batch& mine) override {
    return others_ != nullptr && others_->any_rank_computes(mine);
  }

 private:
  RankGrammars& grammars_;
  Speculation* const speculation_;
  SchedulerHooks* const others_;
  CacheTier* tier_ = nullptr;  // null: the prefix cache is in memory alone
  const Scheduler* scheduler_ = nullptr;
};

}  // namespace hocket
