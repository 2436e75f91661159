// Parameters of one request: the choice of its tokens and the end of its answer. Checked once, when
// it arrives.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "core/grammar_spec.h"

namespace hocket {

// Limits the reasoning of an answer: once `tokens` tokens of it have arrived without an end mark,
// the first of `ends` is written for the model. Immutable once it is part of a request.
struct ReasoningLimit {
  int tokens = 0;  // >= 0; tokens of the marks do not count
  // Begins the reasoning in the answer; empty: the prompt has begun it.
  std::vector<TokenId> open;
  std::vector<std::vector<TokenId>> ends;  // each ends the reasoning; none is empty
};

// Values that are added to the logits of tokens, in ascending order of id. All prompts and choices
// of a request share one list.
class LogitBias {
 public:
  using Entry = std::pair<TokenId, float>;

  LogitBias() = default;
  LogitBias(std::initializer_list<Entry> entries) : LogitBias(std::vector<Entry>(entries)) {}
  explicit LogitBias(std::vector<Entry> entries) {
    if (!entries.empty()) entries_ = std::make_shared<const std::vector<Entry>>(std::move(entries));
  }

  bool empty() const { return entries_ == nullptr; }
  const Entry* begin() const { return empty() ? nullptr : entries_->data(); }
  const Entry* end() const { return empty() ? nullptr : entries_->data() + entries_->size(); }

 private:
  std::shared_ptr<const std::vector<Entry>> entries_;  // null: no bias
};

// The rules and their order are in docs/contracts/sampling.md. Penalties count generated tokens;
// repetition_penalty also counts the prompt. Ranges: core/request_bounds.h.
struct SamplingParams {
  double temperature = 1.0;  // below 1e-5: greedy
  double top_p = 1.0;
  int top_k = 0;  // 0: all
  double min_p = 0.0;
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  double repetition_penalty = 1.0;
  LogitBias logit_bias;
  std::vector<TokenId> allowed_ids;                       // ascending; empty: all
  std::shared_ptr<const GrammarSpec> grammar;             // form of the text; null: free text
  std::shared_ptr<const ReasoningLimit> reasoning_limit;  // null: no limit

  uint64_t seed = 0;  // keys the generator together with the token's position

  int max_new_tokens = 0;         // >= 1, prompt + max_new_tokens <= context
  int min_new_tokens = 0;         // end tokens are masked before this many
  bool ignore_eos = false;        // the model's own end tokens do not stop
  std::vector<TokenId> stop_ids;  // in addition to the model's end tokens
  std::vector<std::string> stop;  // matched on text, outside of the engine thread

  // -1: no logprobs; 0: only for the chosen token; n: also for the n best.
  int num_top_logprobs = -1;
  int prompt_logprobs_from = -1;  // -1: none; p: log-probabilities of prompt tokens p, p+1, ...

  bool return_routed_experts = false;  // the answer names the experts that each token chose

  bool greedy() const { return temperature < 1e-5; }
};

inline constexpr int kMaxTopLogprobs = 20;

}  // namespace hocket
