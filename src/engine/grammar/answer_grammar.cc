#include "engine/grammar/answer_grammar.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace hocket {

AnswerGrammar::AnswerGrammar(const std::shared_ptr<const Grammar>& compiled, size_t mask_words,
                             std::shared_ptr<GrammarCounts> counts,
                             std::shared_ptr<std::atomic<int64_t>> client_bytes)
    : compiled_(compiled),
      matcher_(compiled->begin()),
      mask_(mask_words),
      counts_(std::move(counts)),
      client_bytes_(std::move(client_bytes)) {
  count_bytes();
}

AnswerGrammar::~AnswerGrammar() {
  counts_->answer_bytes -= num_bytes_;
  if (client_bytes_) *client_bytes_ -= num_bytes_;
}

void AnswerGrammar::count_bytes() {
  const auto now = static_cast<int64_t>(matcher_.num_bytes());
  const int64_t more = now - std::exchange(num_bytes_, now);
  counts_->answer_bytes += more;
  if (client_bytes_) *client_bytes_ += more;
}

bool AnswerGrammar::holds_too_much() const {
  return num_bytes_ > kSmallAnswerGrammarBytes &&
         (counts_->answer_bytes > kMaxAnswerGrammarsBytes ||
          (client_bytes_ && *client_bytes_ > kMaxClientGrammarsBytes));
}

bool AnswerGrammar::take() {
  State stale = State::stale;
  return state_.compare_exchange_strong(stale, State::under_way, std::memory_order_acq_rel);
}

void AnswerGrammar::compute() {
  const TimePoint begin = RealClock().now();
  if (const std::optional<TokenId> only = only_next())
    allow_only(*only);
  else if (!broken_)
    broken_ = !matcher_.mask(mask_);
  count_bytes();
  if (holds_too_much()) broken_ = true;
  counts_->add(&GrammarCounters::mask_seconds_total, to_seconds(RealClock().now() - begin));
  state_.store(State::ready, std::memory_order_release);
  state_.notify_all();
}

void AnswerGrammar::allow_only(TokenId token) {
  std::ranges::fill(mask_, 0u);
  const auto id = static_cast<size_t>(value(token));
  mask_[id / 32] = 1u << (id % 32);
}

void AnswerGrammar::precompute_mask() {
  if (!take()) return;
  counts_->add(&GrammarCounters::num_masks_ahead);
  compute();
}

std::span<const uint32_t> AnswerGrammar::mask() {
  if (take()) {
    counts_->add(&GrammarCounters::num_masks_late);
    compute();
  }
  while (state_.load(std::memory_order_acquire) != State::ready)
    state_.wait(State::under_way, std::memory_order_acquire);
  if (broken_) return {};
  return mask_;
}

// Only the sampling thread touches the matcher until the mask is stale.
GrammarVerdict AnswerGrammar::accept(TokenId token, int max_forced) {
  forced_.clear();
  GrammarVerdict verdict = follow(token);
  while (verdict == GrammarVerdict::may_continue && std::ssize(forced_) < max_forced) {
    const std::optional<TokenId> next = only_next();
    if (!next) break;
    const GrammarVerdict after = follow(*next);
    // The next mask() is empty, as it would be without forcing.
    if (after == GrammarVerdict::failed) break;
    forced_.push_back(*next);
    verdict = after;
  }
  state_.store(State::stale, std::memory_order_release);
  return verdict;
}

GrammarVerdict AnswerGrammar::follow(TokenId token) {
  asked_ =
      num_followed_ < run_.size() && run_[num_followed_] == token && ++num_followed_ < run_.size();
  const auto state = matcher_.accept(token);
  broken_ = !state.has_value();
  if (broken_) return GrammarVerdict::failed;
  ended_ = state->ended;
  return ended_ ? GrammarVerdict::ended : GrammarVerdict::may_continue;
}

// The result depends on the tokens so far alone, however many of them were drawn or forced.
std::optional<TokenId> AnswerGrammar::only_next() {
  if (broken_ || ended_) return std::nullopt;
  if (!asked_) run_ = matcher_.forced(), num_followed_ = 0;
  asked_ = true;
  if (run_.empty()) return std::nullopt;
  return run_[num_followed_];
}

}  // namespace hocket
