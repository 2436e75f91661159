// How one request wants its tokens chosen and where it ends. Validated once, at the server's edge.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "core/grammar.h"

namespace hocket {

// How long an answer may think: once `tokens` thoughts have come and nothing has ended them, the
// first of `ends` is written for it. Immutable once it is part of a request.
struct ThoughtLimit {
  int tokens = 0;                          // >= 0; those of the marks not counted
  std::vector<TokenId> open;               // begins them in the answer; empty: the prompt has
  std::vector<std::vector<TokenId>> ends;  // each ends thoughts; none is empty
};

// Values that are added to the logits of tokens, in ascending id. The prompts of a batch and their
// answers share one list.
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
  std::shared_ptr<const std::vector<Entry>> entries_;  // null: none
};

// Rules and their order: docs/contracts/sampling.md. Penalties count generated tokens;
// repetition_penalty also the prompt. Ranges: core/request_bounds.h.
struct SamplingParams {
  double temperature = 1.0;  // below 1e-5 greedy
  double top_p = 1.0;
  int top_k = 0;  // 0: all
  double min_p = 0.0;
  double frequency_penalty = 0.0;
  double presence_penalty = 0.0;
  double repetition_penalty = 1.0;
  LogitBias logit_bias;
  std::vector<TokenId> allowed_ids;              // ascending; empty: all
  std::shared_ptr<const GrammarSpec> grammar;    // that the text follows; null: free text
  std::shared_ptr<const ThoughtLimit> thoughts;  // null: as long as the model likes

  uint64_t seed = 0;  // keys the generator together with the token's position

  int max_new_tokens = 0;         // >= 1, prompt + max_new_tokens <= context
  int min_new_tokens = 0;         // end tokens are masked before that many
  bool ignore_eos = false;        // the model's own end tokens do not stop
  std::vector<TokenId> stop_ids;  // besides the model's
  std::vector<std::string> stop;  // strings; matched on text, off the engine thread

  int num_top_logprobs = -1;      // -1: no logprobs; 0: the chosen token's; n: and the n best
  int prompt_logprobs_from = -1;  // -1: none; p: log-probabilities of prompt tokens p, p+1, ...

  bool return_routed_experts = false;  // the experts that each token chose come with the answer

  bool greedy() const { return temperature < 1e-5; }
};

inline constexpr int kMaxTopLogprobs = 20;

}  // namespace hocket
