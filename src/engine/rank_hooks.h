// Answers the questions of a rank's scheduler (policy/scheduler/scheduler_hooks.h) about grammars
// that are being compiled, pages that are being read, drafts and the other ranks. Thread: engine.
#pragma once

#include <vector>

#include "engine/cache_tier.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/speculation.h"
#include "policy/scheduler/scheduler_hooks.h"

namespace hocket {

// When the second tier gets the pages of a request that goes on: at once, or once the model's own
// module has computed its rows of them, so that pages that come back have these.
enum class PageWrites : uint8_t { at_commit, after_module };

class RankHooks final : public SchedulerHooks {
 public:
  // All arguments outlive it. `speculation` is null if there are no drafts, `others` on the only
  // rank.
  RankHooks(RankGrammars& grammars, Speculation* speculation, SchedulerHooks* others)
      : grammars_(grammars), speculation_(speculation), others_(others) {}

  // The scheduler's prefix cache has a second tier from here on; both outlive this.
  void attach(CacheTier& tier, const Scheduler& scheduler, PageWrites writes) {
    tier_ = &tier;
    scheduler_ = &scheduler;
    writes_ = writes;
  }
  // Hands over the pages that waited for the module; call it before the next schedule().
  void write_pages() {
    for (const Request* request : waiting_) tier_->on_pages_cached(*request, *scheduler_);
    waiting_.clear();
  }
  void forget(const Request& request) { std::erase(waiting_, &request); }

  Result<bool> ready(const Request& request) override {
    const bool has_pages = tier_ == nullptr || tier_->ready(request, *scheduler_);
    const Result<bool> has_grammar = grammars_.ready(request);
    return has_grammar && *has_grammar ? has_pages : has_grammar;
  }
  bool may_begin() override { return others_ == nullptr || others_->may_begin(); }
  void offer_drafts(std::span<AnswerDrafts> answers, int max_rows) override {
    if (speculation_ != nullptr) speculation_->offer(answers, max_rows);
  }
  void on_pages_cached(const Request& request) override {
    if (tier_ == nullptr) return;
    if (writes_ == PageWrites::at_commit || request.finish != FinishReason::none)
      tier_->on_pages_cached(request, *scheduler_);
    else
      waiting_.push_back(&request);
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
  PageWrites writes_ = PageWrites::at_commit;
  std::vector<const Request*> waiting_;  // for write_pages()
};

}  // namespace hocket
