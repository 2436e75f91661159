// Follows a grammar through one answer, in step with its tokens: mask, draw, accept, mask, ...
//
//   sampling     | mask() draw accept() |                        | mask() draw accept() |
//   thread masks                          precompute_mask()
//
// If a token leaves no choice for the next ones, one call of the matcher returns all of these
// forced tokens. The mask of each allows that token alone, and accept() takes as many of them as it
// is allowed to, so that no step need be computed for their logits.
//
// The thread `masks` and the sampling that needs the next mask may both ask for it: the first one
// computes it, the other finds it done or waits for it. So masks never depend on timing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/stats/grammar_stats.h"
#include "policy/scheduler/batch.h"
#include "text/grammar/grammar.h"

namespace hocket {

// Limits of the bytes that the matchers of all answers may hold together, and those of one client.
// Beyond either, no new matcher is made, and one larger than kSmallAnswerGrammarBytes fails when it
// grows.
inline constexpr int64_t kMaxAnswerGrammarsBytes = int64_t{1} << 30;
inline constexpr int64_t kMaxClientGrammarsBytes = kMaxAnswerGrammarsBytes / 2;
inline constexpr int64_t kSmallAnswerGrammarBytes = 8 << 20;

class AnswerGrammar : public std::enable_shared_from_this<AnswerGrammar> {
 public:
  // compiled: what the answer follows. client_bytes: sum of the bytes that its client's matchers
  // hold; null: not counted by client.
  AnswerGrammar(const std::shared_ptr<const Grammar>& compiled, size_t mask_words,
                std::shared_ptr<GrammarCounts> counts,
                std::shared_ptr<std::atomic<int64_t>> client_bytes = nullptr);
  ~AnswerGrammar();

  // Returns the mask of tokens that are allowed next (mask_allows); empty if the grammar cannot be
  // followed any further. Valid until accept(). Thread: that which samples the row.
  std::span<const uint32_t> mask();
  // Takes the drawn token, which the mask allowed, and up to `max_forced` of the tokens that must
  // follow it. Returns the grammar's state after all of them. Precondition: mask() was called, or
  // the token is known to be the next. Thread: that which samples the row.
  GrammarVerdict accept(TokenId token, int max_forced = 0);
  // Returns the forced tokens that the last accept() took. Valid until the next. Thread: the same.
  std::span<const TokenId> forced() const { return forced_; }
  // Computes the mask unless it is there or under way. Thread: any.
  void precompute_mask();
  // Returns the grammar; null if nothing but this answer used it any more. Thread: any.
  std::shared_ptr<const Grammar> compiled() const { return compiled_.lock(); }

 private:
  enum class State : int { stale, under_way, ready };
  bool take();
  void compute();
  void count_bytes();
  bool holds_too_much() const;
  void allow_only(TokenId token);
  GrammarVerdict follow(TokenId token);
  std::optional<TokenId> only_next();

  const std::weak_ptr<const Grammar> compiled_;  // the cache of grammars may drop it
  GrammarMatcher matcher_;
  std::vector<uint32_t> mask_;
  std::vector<TokenId> forced_;
  std::vector<TokenId> run_;             // forced tokens that the matcher returned
  size_t num_followed_ = 0;              // number of tokens of run_ that were taken
  bool asked_ = false;                   // true if the rest of run_ is still valid
  bool ended_ = false, broken_ = false;  // nothing may follow; the matcher failed
  std::atomic<State> state_{State::stale};
  const std::shared_ptr<GrammarCounts> counts_;
  const std::shared_ptr<std::atomic<int64_t>> client_bytes_;
  int64_t num_bytes_ = 0;  // size of the matcher at the last count
};

}  // namespace hocket
