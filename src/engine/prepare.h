// From the scheduler's batch to the compute wing's: the only place where policy turns into tensors.
// Thread: engine. Allocates nothing after warm-up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compute/forward/forward_batch.h"
#include "engine/flight.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/ranks/half_packing.h"
#include "policy/scheduler/batch.h"

namespace hocket {

struct PrepareOptions {
  int page_tokens = 0;
  TokenRole prompt_role = TokenRole::prompt;  // given to prompt tokens
  std::span<const TokenId> eos_ids;           // the model's; outlive the flight
  std::optional<HalfPacking> packing;         // of a step that is played in two halves
  const RankGrammars* grammars = nullptr;     // of requests that follow one
  int most_forced = 0;                        // tokens a row, without a step of their own
};

// Fills `flight` but for what forward() and sample() find. `batch` and its requests are borrowed
// until it is committed. Rows stand in slice order; or packed for two halves: rows of answers for
// the first half, prompts, the other answers, each in slice order. Outputs, samples and what is
// found for them always are in slice order.
void prepare(const Batch& batch, const PrepareOptions& options, Flight& flight);

// Appends rows [row_begin, ...) of one sequence, tokens [begin, end), to forward.sequences: those
// of the prompt apart from those after it.
struct SequenceRows {
  int row_begin = 0;
  int begin = 0, end = 0;  // tokens
  int prompt_len = 0;
  std::span<const PageId> pages;
};
void add_sequence(const SequenceRows& rows, TokenRole prompt_role, ForwardBatch& forward);

}  // namespace hocket
