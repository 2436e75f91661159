// A flight is one step in progress: from the scheduler's batch, through the model, to its tokens.
//
//   engine thread        prepare() --.                             .--> commit, reply
//   thread of worker 0                '--> forward(), sample() ---'
//
// Both are one thread, except with overlapped scheduling: then the second is the forward thread,
// which touches nothing but the flight, the model, the sampler, the ledger, and in a pass the
// exchange with other ranks. So a flight copies all data that commit() may change while it computes
// (pages), and borrows only data that never changes: a request's parameters and the tokens that it
// had. Flights are reused; they allocate nothing after warm-up, except for log-probabilities.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "cluster/own_heartbeat.h"
#include "compute/forward/forward_batch.h"
#include "compute/overlap/ledger.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/lockstep/agreed_step.h"
#include "engine/lockstep/half_packing.h"
#include "engine/runner/runner.h"
#include "engine/sampler.h"
#include "engine/stats/expert_stats.h"
#include "engine/stats/routed_rows.h"
#include "policy/scheduler/batch.h"
#include "policy/speculation/drafter.h"

namespace hocket {

// A row whose token is not known yet, because the step before has to sample it first.
struct PendingRow {
  int row = 0;    // index of the row in this flight
  int index = 0;  // index in `sampled` of the step before
};

// A prompt token whose log-probability the request asks for.
struct PromptRow {
  RequestId request{};
  int index = 0;  // index among the prompt tokens that its request asks for
  TokenId token{};
  int num_top = 0;
  int output = 0;          // index in output_rows of the row before it
  PositionLogprobs found;  // set by sample()
};

// The work for drafts before a step.
struct DraftWork {
  Duration took{};
  FollowedRows followed = FollowedRows::none;
};

class ModuleDrafter;
struct ModulePasses;

struct Flight {
  AgreedStep agreed;
  bool after_idle = false;    // nothing ran just before it
  LayerMove* move = nullptr;  // experts that move before its pass; null: none
  // Passes of the model's own module that are played before its own; null: none.
  ModulePasses* module = nullptr;
  // prepare() sets these.
  const Batch* batch = nullptr;
  ForwardBatch forward;
  std::vector<PageId> pages;  // pages of all sequences, one list after the other
  std::vector<PendingRow> pending_rows;
  std::vector<SampleRow> samples;      // logits_row is an index in output_rows
  std::vector<PromptRow> prompt_rows;  // sorted by `output`
  std::vector<int32_t> row_begins;     // first row of each slice
  std::vector<PackedAnswer> answers;   // those of the step, if they are packed for two halves
  HalfPacker packer;
  bool wants_routed = false;  // true if a request asks for routed experts
  // forward() and sample() set these.
  std::vector<SampledToken> sampled;  // one for each of `samples`
  // One for each of `samples`; null if not asked for.
  std::vector<std::unique_ptr<PositionLogprobs>> logprobs;
  TimePoint begin{}, end{};  // times when computing began and ended
  DraftWork drafting;        // also while its drafts were made, before it was
  Duration exchange_wait{};  // waits for other ranks in the pass
  StepAccount account;       // the ledger's, with the time since the pass before
  ExpertPass experts;        // counted if expert statistics are recorded
  RoutedRows routed;         // filled if wants_routed
  // Set if a rank was lost while computing: then no result of the flight may be used.
  std::optional<Error> lost;

  Duration took() const { return end - begin + drafting.took; }
  // The most of each that a step may have.
  struct Limits {
    int requests = 0, samples = 0, pages = 0;
  };
  // Reserves memory for any step within these limits; `pages` grows beyond its share only if very
  // many requests share pages.
  void reserve(const WorkLimits& work, const Limits& limits);
};

// The tools that compute a step. Thread: that of worker 0.
struct StepTools {
  Runner& runner;
  Sampler& sampler;
  const Clock& clock;
  Ledger* ledger = nullptr;               // books the times of the open step
  const ExpertStats* experts = nullptr;   // null for a dense model
  RankGrammars* grammars = nullptr;       // matchers of the rows that follow a grammar
  ModuleDrafter* module = nullptr;        // plays the passes of the model's own module
  OwnHeartbeat* own_heartbeat = nullptr;  // null on the only rank
};

// Plays passes of the model's own module behind a step that sampled `before`
// (ModuleDrafter::play()). Errors: lost_rank.
Result<DraftWork> play(ModulePasses& passes, std::span<const SampledToken> before,
                       const StepTools& tools);
// The action forward: plays the passes of the model's own module that the flight has, fills in the
// tokens that the step before sampled (`before`; empty if neither needs them), and runs the model.
void forward(Flight& flight, std::span<const SampledToken> before, const StepTools& tools);
// The action sample, after forward(): makes logits and uses them block by block, which bounds a
// step's memory for them. The heartbeat reaches kSampleStage plus 1, 2, .. before each block.
inline constexpr uint32_t kSampleStage = uint32_t{1} << 31;  // beyond those of the pass
void sample(Flight& flight, const StepTools& tools);

}  // namespace hocket
