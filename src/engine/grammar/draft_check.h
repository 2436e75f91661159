// Finds how many drafts of an answer its grammar would let through, so that no row is spent on the
// others, and the tokens that it forces, which are drafts that are always accepted. It follows the
// answer with a matcher of its own. The answer's matcher fails at limits of time and memory, and a
// wrong draft must not count towards them, since a draft changes no answer. Owner: RankGrammars.
// Thread: engine.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "base/clock.h"
#include "text/grammar/grammar.h"

namespace hocket {

// Drafts are not checked, and sampling alone refuses them:
// - while the matcher holds more than kDraftCheckBytes, or those of all answers of a rank more than
//   kDraftChecksBytes (memory_plan.h);
// - for an answer, once one check took kDraftCheckTime, as the engine's thread has others to serve;
// - for the rest of a step, once its checks took kDraftChecksTime together.
// Times are the processor's, so that the load of the machine does not decide.
inline constexpr size_t kDraftCheckBytes = 8 << 20;
inline constexpr Duration kDraftCheckTime = std::chrono::milliseconds(5);
inline constexpr Duration kDraftChecksTime = std::chrono::milliseconds(20);

class DraftCheck {
 public:
  explicit DraftCheck(GrammarMatcher matcher) : matcher_(std::move(matcher)) {}

  // Returns how many of the drafts may follow, one behind the other; all of them if they are not
  // checked (see above). generated: all tokens of the answer, which only grow. May allocate.
  size_t num_allowed(std::span<const TokenId> generated, std::span<const TokenId> drafts);
  // Writes the tokens that must follow; returns how many, 0 if there is a choice. May allocate.
  size_t forced(std::span<const TokenId> generated, std::span<TokenId> out);
  // Deletes the matcher; from then on num_allowed() lets all drafts pass.
  void give_up() { matcher_.reset(); }
  size_t num_bytes() const { return matcher_ ? matcher_->num_bytes() : 0; }

 private:
  // Each new token adds this much time, up to as many tokens: a longer answer that was not followed
  // from its begin is given up.
  static constexpr Duration kTakeTime = std::chrono::microseconds(200);
  static constexpr size_t kMaxTimed = 64;
  // Gives the matcher up at its end if the call took too long, or made it too large.
  class Watch {
   public:
    Watch(DraftCheck& check, size_t num_new);
    ~Watch();
    Watch(const Watch&) = delete;
    Watch& operator=(const Watch&) = delete;
    bool is_over() const;

   private:
    DraftCheck& check_;
    const Duration end_;  // in processor time of the thread
  };
  bool catch_up(std::span<const TokenId> generated, const Watch& watch);

  std::optional<GrammarMatcher> matcher_;  // null: it was given up
  size_t num_taken_ = 0;                   // tokens of the answer that the matcher has taken
};

}  // namespace hocket
