// Converts the scheduler's batch into a ForwardBatch; no other code turns policy into tensors.
// Thread: engine. Allocates nothing after warm-up.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compute/forward/forward_batch.h"
#include "engine/flight.h"
#include "engine/grammar/rank_grammars.h"
#include "engine/lockstep/half_packing.h"
#include "policy/scheduler/batch.h"

namespace hocket {

struct PrepareOptions {
  int page_tokens = 0;
  // Models with sliding windows: the cleared page of window layers that no request owns; it
  // replaces those that were given up. Else kNoPage.
  PageId unseen_page = kNoPage;
  MlaForm prompt_form = MlaForm::expanded;  // form of prompt tokens
  std::span<const TokenId> eos_ids;         // end tokens of the model; outlive the flight
  std::optional<HalfPacking> packing;       // set if the step is played in two halves
  const RankGrammars* grammars = nullptr;   // holds those of the requests
  int max_forced = 0;                       // most forced tokens that a row may take in a step
};

// Fills `flight`, except the members that forward() and sample() set. Borrows `batch` and its
// requests until the commit. Rows are in slice order; or, packed for two halves: answers of the
// first half, prompts, the other answers, each in slice order. Outputs, samples and their
// results are always in slice order.
void prepare(const Batch& batch, const PrepareOptions& options, Flight& flight);

// Returns true if tokens that the request's grammar forces may be taken without a step of their
// own. False if it asks for logprobs or routed experts, because a forced token has no logits and
// the last one no row; false with allowed_ids, because then the grammar is not the only rule.
bool may_force(const SamplingParams& params);

// Appends rows [row_begin, ...) of one sequence, tokens [begin, end), to forward.sequences. Rows of
// the prompt and rows after it become two entries, and so do rows before and behind a border.
struct SequenceRows {
  int row_begin = 0;
  int begin = 0, end = 0;  // token positions
  int prompt_len = 0;
  std::span<const PageId> pages;
  std::span<const PageId> window_pages = {};  // empty: the model has no pages of window layers
  std::span<const int> form_borders = {};     // Request::form_borders
};
void add_sequence(const SequenceRows& rows, MlaForm prompt_form, ForwardBatch& forward);

}  // namespace hocket
