// One step on its way: from the scheduler's batch, through the model, to its tokens.
//
//   engine thread        prepare() --.                             .--> commit, reply
//   thread of worker 0                '--> forward(), sample() ---'
//
// The second thread is the same one, or with overlapped scheduling the forward thread; it touches
// nothing but the flight, the model and the sampler. So a flight owns copies of whatever commit()
// may change while it computes (pages), or borrows what never changes: a request's parameters and
// the tokens that it had. Reused for ever; allocates nothing after warm-up, but for
// log-probabilities.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "compute/forward/forward_batch.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/ranks/half_packing.h"
#include "engine/runner.h"
#include "engine/sampler.h"
#include "engine/watch/expert_stats.h"
#include "engine/watch/routed_rows.h"
#include "policy/scheduler/batch.h"

namespace hocket {

// A row whose token the step before has yet to sample.
struct FutureRow {
  int row = 0;      // of the flight
  int index = 0;    // in the `sampled` of the step before
  int sample = -1;  // of the flight's samples, the one of the same request; -1: none
};

// A prompt token whose log-probability is wanted.
struct PromptRow {
  RequestId request{};
  int index = 0;  // of those that its request wants
  TokenId token{};
  int num_top = 0;
  int output = 0;          // index in output_rows of the row before it
  PositionLogprobs found;  // by sample()
};

struct Flight {
  // Set by prepare().
  const Batch* batch = nullptr;
  ForwardBatch forward;
  std::vector<PageId> pages;  // of its sequences, one list after the other
  std::vector<FutureRow> futures;
  std::vector<SampleRow> samples;      // logits_row: index in output_rows
  std::vector<PromptRow> prompt_rows;  // ascending output
  std::vector<int32_t> row_begins;     // of each slice, its first row
  std::vector<int32_t> keys;           // that each row of answers reads
  HalfPacker packer;
  bool wants_routed = false;  // some request does
  // Set by forward() and sample().
  std::vector<SampledToken> sampled;                        // one for each of samples
  std::vector<std::unique_ptr<PositionLogprobs>> logprobs;  // likewise
  TimePoint begin{}, end{};                                 // of the computing
  ExpertPass experts;                                       // counted where somebody asks
  RoutedRows routed;                                        // likewise
  // Ranks that computed together are no more: nothing of it may be used.
  std::optional<Error> lost;

  Duration took() const { return end - begin; }
  // Takes memory for any step of these limits; `pages` grows beyond its share only when requests
  // share very many.
  void reserve(const WorkLimits& work, int max_requests, int num_pages);
};

// What a step is computed with. Thread: that of worker 0.
struct StepTools {
  Runner& runner;
  Sampler& sampler;
  const Clock& clock;
  PassId pass = {};                      // as the ranks agreed, where there are several
  Plan plan = {};                        // likewise
  bool is_shadow = false;                // likewise
  Ledger* ledger = nullptr;              // whose step is open; null: nobody books it
  const ExpertStats* experts = nullptr;  // null: a dense model
  RankGrammars* grammars = nullptr;      // of rows that follow one
};

// The verb forward. Fills in the tokens that the step before sampled (`before`, empty where there
// are no futures) and plays the pass.
void forward(Flight& flight, std::span<const SampledToken> before, const StepTools& tools);
// The verb sample, after forward(): logits are made and used block by block, so that a step's
// memory for them is bounded.
void sample(Flight& flight, const StepTools& tools);

}  // namespace hocket
