// The drafts of a rank in the verbs of its steps: the gate with its drafter (speculation.h), and
// the model's own module where that makes drafts (module_drafter.h). All does nothing without
// --speculative-algorithm.
//
//   compute()  before schedule     note_scheduled()     plan()  after forward     commit()
//
// Owner: RankStep. Thread: engine, except Speculation::state().
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "engine/flight.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/module_drafter.h"
#include "engine/runner/runner.h"
#include "engine/speculation.h"
#include "policy/speculation/ngram_drafter.h"

namespace hocket {

struct RankParts;

// The parts of a rank that drafters ask, and which outlive the drafters.
struct DraftSources {
  RankGrammars& grammars;
  NgramDrafter::Sources of_text;
};

class RankDrafts {
 public:
  RankDrafts(const RankParts& parts, int rank, Runner& runner, DraftSources sources);

  // Returns the gate; null if there are no drafts.
  Speculation* speculation() const { return gate_.get(); }
  // True if the model's own module makes drafts.
  bool has_module() const { return module_ != nullptr; }
  // Returns how many passes of the module this rank needs before the next step.
  int num_passes() const { return module_ != nullptr ? module_->num_passes() : 0; }
  // Returns the drafts of the last step with answers: as many are expected in the next.
  int num_expected() const { return num_drafts_; }

  // As ModuleDrafter::compute(). Precondition: has_module().
  Result<void> compute(std::span<const PassSpec> passes) { return module_->compute(passes); }
  // Notes a page that came back to memory.
  void note_restored(PageId page) {
    if (module_ != nullptr) module_->note_restored(page);
  }
  void note_scheduled(const Batch& batch);
  // Plans the passes of the module behind a step that has computed.
  void plan(const Batch& batch);
  // Learns from a step that was committed at `now`; its requests are still there. overlapped_share:
  // as DraftOverlap::factor_of().
  void commit(const Flight& flight, TimePoint now, std::optional<double> overlapped_share);
  // Notes that there is nothing to run.
  void note_idle();
  void forget(RequestId id);

 private:
  ModuleDrafter* module_ = nullptr;  // gate_ owns it
  const std::unique_ptr<Speculation> gate_;
  int num_drafts_ = 0;
};

}  // namespace hocket
