// Implements the scheduler's hooks (policy/scheduler/scheduler_hooks.h) for one rank: they depend
// on grammars that compile, pages that are read, drafts, and the other ranks. Thread: engine.
#pragma once

#include <vector>

#include "engine/grammar/rank_grammars.h"
#include "engine/lockstep/lockstep.h"
#include "engine/module_drafter.h"
#include "engine/speculation.h"
#include "engine/tier/cache_tier.h"
#include "policy/scheduler/scheduler_hooks.h"

namespace hocket {

class RankHooks final : public SchedulerHooks {
 public:
  // All arguments outlive it. `speculation` is null if there are no drafts, `others` on the only
  // rank.
  RankHooks(RankGrammars& grammars, Speculation* speculation, Lockstep* others)
      : grammars_(grammars), speculation_(speculation), others_(others) {}

  // Attaches the second tier of the scheduler's prefix cache; both must outlive this. A request's
  // pages are passed on at once; with a draft module, only after it has added its rows to them, so
  // that restored pages contain them. module: null if there is none.
  void attach(CacheTier& tier, const Scheduler& scheduler, const ModuleDrafter* module) {
    tier_ = &tier;
    scheduler_ = &scheduler;
    module_ = module;
  }
  // Adds the pages that waited for the module; call it behind the module's passes. Those of the
  // next step may play already, and write rows of these pages again if there are several modules.
  void write_pages() {
    if (!waiting_.empty() && module_ != nullptr) module_->await_passes();
    for (const Request* request : waiting_) tier_->on_pages_cached(*request, *scheduler_);
    waiting_.clear();
  }
  void forget(const Request& request) { std::erase(waiting_, &request); }

  Result<bool> ready(const Request& request) override {
    const bool has_pages = tier_ == nullptr || tier_->ready(request, *scheduler_);
    const Result<bool> has_grammar = grammars_.ready(request);
    return has_grammar && *has_grammar ? has_pages : has_grammar;
  }
  bool waits_again(const Request& request) override {
    return tier_ != nullptr && tier_->waits_again(request, *scheduler_);
  }
  bool may_begin() override { return others_ == nullptr || others_->may_begin(); }
  bool needs_windows(const Request& request, int border) override {
    return tier_ != nullptr && tier_->lacks_windows(request, border);
  }
  void offer_drafts(std::span<AnswerDrafts> answers, const DraftedStep& step) override {
    if (speculation_ == nullptr) return;
    DraftedStep shared = step;
    if (others_ != nullptr) {
      shared.num_other_answers = others_->agreed().num_other_answers;
      shared.num_other_drafts = others_->agreed().num_other_drafts;
      shared.number = others_->agreed().pass.step;
      shared.has_prompts |= others_->agreed().pass.phase == Phase::prefill;
    }
    speculation_->offer(answers, shared);
  }
  void on_pages_cached(const Request& request) override {
    if (tier_ == nullptr) return;
    if (module_ != nullptr && request.finish == FinishReason::none)
      return waiting_.push_back(&request);
    // Where steps overlap, passes may be under way that write to the last page.
    if (module_ != nullptr) module_->await_passes();
    tier_->on_pages_cached(request, *scheduler_);
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
  Lockstep* const others_;
  CacheTier* tier_ = nullptr;  // null: the prefix cache is in memory alone
  const Scheduler* scheduler_ = nullptr;
  const ModuleDrafter* module_ = nullptr;
  std::vector<const Request*> waiting_;  // for write_pages()
};

}  // namespace hocket
