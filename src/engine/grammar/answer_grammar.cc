#include "engine/grammar/answer_grammar.h"

#include <utility>

#include "base/clock.h"

namespace hocket {

AnswerGrammar::AnswerGrammar(GrammarMatcher matcher, size_t mask_words,
                             std::shared_ptr<GrammarCounts> counts)
    : matcher_(std::move(matcher)), mask_(mask_words), counts_(std::move(counts)) {}

bool AnswerGrammar::take() {
  State stale = State::stale;
  return state_.compare_exchange_strong(stale, State::under_way, std::memory_order_acq_rel);
}

void AnswerGrammar::compute() {
  const TimePoint begin = RealClock().now();
  if (!broken_) broken_ = !matcher_.mask(mask_);
  counts_->mask_ns += (RealClock().now() - begin).count();
  state_.store(State::ready, std::memory_order_release);
  state_.notify_all();
}

void AnswerGrammar::compute_ahead() {
  if (!take()) return;
  ++counts_->num_masks_ahead;
  compute();
}

std::span<const uint32_t> AnswerGrammar::mask() {
  if (take()) {
    ++counts_->num_masks_late;
    compute();
  }
  while (state_.load(std::memory_order_acquire) != State::ready)
    state_.wait(State::under_way, std::memory_order_acquire);
  if (broken_) return {};
  return mask_;
}

GrammarVerdict AnswerGrammar::accept(TokenId token) {
  const auto state = matcher_.accept(token);
  broken_ = !state.has_value();
  state_.store(State::stale, std::memory_order_release);
  if (broken_) return GrammarVerdict::failed;
  return state->ended ? GrammarVerdict::ended : GrammarVerdict::goes_on;
}

}  // namespace hocket
