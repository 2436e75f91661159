// Answers the questions of a rank's scheduler (policy/scheduler/scheduler_hooks.h) about grammars
// that are being compiled and about the other ranks. Thread: engine.
#pragma once

#include "engine/grammar/rank_grammars.h"
#include "policy/scheduler/scheduler_hooks.h"

namespace hocket {

class RankHooks final : public SchedulerHooks {
 public:
  // Both arguments outlive it; `others` is null on the only rank.
  RankHooks(RankGrammars& grammars, SchedulerHooks* others)
      : grammars_(grammars), others_(others) {}

  Result<bool> ready(const Request& request) override { return grammars_.ready(request); }
  bool may_begin() override { return others_ == nullptr || others_->may_begin(); }
  bool agree(const Batch& mine) override { return others_ != nullptr && others_->agree(mine); }

 private:
  RankGrammars& grammars_;
  SchedulerHooks* const others_;
};

}  // namespace hocket
