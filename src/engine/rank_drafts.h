// The drafts of a rank in the actions of its steps: gate, drafters and seats (speculation.h), and
// the model's own module where that makes drafts (module_drafter.h). Without
// --speculative-algorithm its functions do nothing.
//
//   before schedule: the module's passes     note_scheduled()     plan()     commit()     end()
//
// Owner: RankRequests. Thread: engine, except Speculation::state().
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/flight.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/module_drafter.h"
#include "engine/runner/runner.h"
#include "engine/speculation.h"
#include "policy/speculation/ngram_drafter.h"

namespace hocket {

struct RankParts;

// The parts of a rank that drafters use; they outlive the drafters.
struct DraftSources {
  RankGrammars& grammars;
  NgramDrafter::Sources of_text;
};

class RankDrafts {
 public:
  RankDrafts(const RankParts& parts, int rank, Runner& runner, DraftSources sources);

  // Returns the gate with its drafters and the seats of requests; null if there are no drafts.
  Speculation* speculation() const { return speculation_.get(); }
  // Returns the drafter of the model's own module; null if that makes no drafts.
  ModuleDrafter* module() const { return module_; }
  // Returns how many passes of the module this rank needs before the next step.
  int num_passes() const { return module_ != nullptr ? module_->num_passes() : 0; }
  // Returns the number of drafts of the step that was scheduled last.
  int num_last_drafts() const { return num_drafts_; }

  // Notes a page that was read into memory.
  void note_restored(PageId page) {
    if (module_ != nullptr) module_->note_restored(page);
  }
  void note_scheduled(const Batch& batch);
  // As ModuleDrafter::begin(), but returns null if there is no module, or no pass. agreed: the
  // passes that the ranks agreed on; null on the only rank.
  ModulePasses* begin_passes(std::optional<std::span<const PassSpec>> agreed);
  // The same behind a step that is under way, as ModuleDrafter::settle_under_way().
  ModulePasses* begin_passes_behind(const Flight& flight,
                                    std::optional<std::span<const PassSpec>> agreed);
  // Plans the passes of the module behind a step that was scheduled.
  void plan(const Batch& batch);
  // Learns from a step that was committed at `now`; its requests are still there. overlapped_share:
  // as DraftOverlap::factor_of().
  void commit(const Flight& flight, TimePoint now, std::optional<double> overlapped_share);
  // Notes that there is nothing to run.
  void note_idle();
  // If there are several modules, waits for the passes under way: they compute rows of earlier
  // steps again, and these may lie in cached pages.
  void await_rewritten_rows() const {
    if (module_ != nullptr && module_->has_several_modules()) module_->await_passes();
  }
  // As ModuleDrafter::take_back_failed().
  void take_back_failed() {
    if (module_ != nullptr) module_->take_back_failed();
  }
  // Drops the passes that were planned, because no step follows at once.
  void drop_passes();
  // Takes a request that has ended. Where steps overlap, passes of the module that are under way
  // may read it until the next step is committed.
  void end(std::unique_ptr<Request> request);

 private:
  const bool has_others_;            // there are other ranks
  ModuleDrafter* module_ = nullptr;  // speculation_ owns it
  const std::unique_ptr<Speculation> speculation_;
  int num_drafts_ = 0;
  std::vector<std::unique_ptr<Request>> ended_;  // those that the module's passes may read
};

}  // namespace hocket
