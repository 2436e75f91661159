// Chooses tokens from rows of logits: vLLM's order of rules, a counter-based random generator keyed
// by (seed, position), logprobs of the untouched logits. A row's token depends on its logits,
// parameters and history alone, never on the other rows of the batch.
//
//   grammar, allowed ids, min_new_tokens, logit_bias, repetition, frequency, presence; then
//   temperature, min_p, top_k, top_p; argmax ties to the lowest id
//
// Source: docs/contracts/sampling.md. Thread: engine; workers split rows. Allocates nothing after
// construction, except for logprobs.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "compute/kernels/backend.h"
#include "core/sampling_params.h"
#include "engine/grammar/answer_grammar.h"
#include "engine/messages.h"
#include "policy/scheduler/batch.h"

namespace hocket {

// One row to sample; all pointers are borrowed for the call.
struct SampleRow {
  int logits_row = 0;  // index in the logits that sample() gets
  const SamplingParams* params = nullptr;
  std::span<const TokenId> prompt;
  std::span<const TokenId> generated;   // tokens so far, without those of `newer`
  std::span<const TokenId> newer = {};  // those after them: drafts, or what another step sampled
  // If >= 0: the token after this row is a draft. The next SampleRow is that of the draft; it is
  // sampled only if this one draws the draft.
  TokenId draft{-1};
  // The model's end tokens, empty with ignore_eos. They are masked, as params->stop_ids are, until
  // min_new_tokens.
  std::span<const TokenId> end_ids;
  AnswerGrammar* grammar = nullptr;  // grammar of the answer; accepts the drawn token
  int max_forced = 0;                // most forced tokens to take after the drawn one

  int num_generated() const { return static_cast<int>(generated.size() + newer.size()); }
  // Returns the position of the drawn token in prompt and answer.
  int position() const { return static_cast<int>(prompt.size()) + num_generated(); }
};

// Returns true if the row after this one counts.
bool draft_holds(const SampleRow& row, const SampledToken& drawn);

// Returns a uniform number in [0, 1) from (seed, position) alone: the same on every machine.
double uniform_at(uint64_t seed, uint64_t position);

class Sampler {
 public:
  Sampler(int vocab_size, int max_rows);
  ~Sampler();

  // Samples all rows, except those behind a draft that does not hold, whose results are left alone.
  // out[i] belongs to rows[i]; logprobs[i] is filled if params->num_top_logprobs >= 0 (else left
  // null). The first row is sampled even if it is that of a draft. A row fails if its logits are
  // not finite, before or after its rules are applied, or if its grammar allows no token.
  void sample(Backend& backend, View<const float> logits, std::span<const SampleRow> rows,
              std::span<SampledToken> out, std::span<std::unique_ptr<PositionLogprobs>> logprobs);

  // Returns the log-probability of `token` and of the num_top best in one row of untouched logits.
  static PositionLogprobs position_logprobs(Backend& backend, View<const float> logits, int row,
                                            TokenId token, int num_top);

  // The distribution that sample() draws from, for tests and `check --golden`: processed logits
  // (before temperature; -inf if masked) and probabilities.
  struct Distribution {
    std::vector<double> processed, probabilities;
  };
  // Returns the distribution of a row, without its grammar.
  Distribution distribution(Backend& backend, std::span<const float> logits, const SampleRow& row);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
