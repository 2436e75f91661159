// Answers the questions of a rank's scheduler (policy/scheduler/scheduler_hooks.h) about grammars
// that are being compiled, about drafts and about the other ranks. Thread: engine.
#pragma once

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

  Result<bool> ready(const Request& request) override { return grammars_.ready(request); }
  bool may_begin() override { return others_ == nullptr || others_->may_begin(); }
  void offer_drafts(std::span<AnswerDrafts> answers, int most_rows) override {
    if (speculation_ != nullptr) speculation_->offer(answers, most_rows);
  }
  bool agree(const Batch& mine) override { return others_ != nullptr && others_->agree(mine); }

 private:
  RankGrammars& grammars_;
  Speculation* const speculation_;
  SchedulerHooks* const others_;
};

}  // namespace hocket
