// Makes the drafters of a rank that --speculative-algorithm names. Thread: engine.
#pragma once

#include <memory>

#include "engine/grammar/rank_grammars.h"
#include "engine/module_drafter.h"
#include "engine/runner.h"
#include "engine/speculation.h"
#include "engine/step.h"
#include "policy/speculation/ngram_drafter.h"

namespace hocket {

// The parts of a rank that drafters ask, and which outlive the drafters.
struct DraftSources {
  RankGrammars& grammars;
  NgramDrafter::Sources of_text;
};

// Returns null if there are no drafts. Sets by_module if the model's own module makes drafts.
std::unique_ptr<Speculation> make_speculation(const RankParts& parts, int rank, Runner& runner,
                                              DraftSources sources, ModuleDrafter*& by_module);

}  // namespace hocket
