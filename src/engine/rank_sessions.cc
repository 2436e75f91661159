#include "engine/rank_sessions.h"

#include <memory>
#include <utility>

namespace hocket {

// The queue has room for the save of each call, beside as many of calls that have timed out.
static_assert(std::cmp_greater_equal(PageWriter::kMaxSaves, 2 * Engine::kMaxSessionCalls));

void RankSessions::carry_out(SessionCommand& order) {
  if (order.action == SessionAction::end || order.action == SessionAction::find) {
    const SessionTokens* kept = scheduler_.session_tokens(order.session);
    order.answer.set_value(kept != nullptr
                               ? std::optional(RankSession{.len = std::ssize(kept->tokens)})
                               : std::nullopt);
    if (order.action == SessionAction::end) scheduler_.end_session(order.session);
    return;
  }
  const auto answer =
      std::make_shared<std::promise<std::optional<RankSession>>>(std::move(order.answer));
  if (order.action == SessionAction::save)
    save(order, answer);
  else
    restore(order, answer);
}

void RankSessions::save(const SessionCommand& order, const Answer& answer) {
  const SessionTokens* kept = scheduler_.session_tokens(order.session);
  if (kept == nullptr || tier_ == nullptr) return answer->set_value(std::nullopt);
  tier_->save(
      *kept, scheduler_,
      [answer, tokens = page_tokens_, kept = *kept](int num_pages, bool whole) mutable {
        answer->set_value(
            {{.kept = std::move(kept), .saved_len = int64_t{num_pages} * tokens, .whole = whole}});
      });
}

void RankSessions::restore(const SessionCommand& order, const Answer& answer) {
  const auto keep = [this, answer, key = order.session, found = order.tokens]() mutable {
    const int len = scheduler_.in_tree_len(found.name_space, found.tokens);
    found.tokens.resize(static_cast<size_t>(len));
    scheduler_.protect_session(key, found.name_space, found.tokens, clock_.now());
    answer->set_value({{.kept = std::move(found)}});
  };
  if (tier_ == nullptr ||
      !tier_->restore(order.tokens, scheduler_, order.deadline - kAnswerTime, keep))
    answer->set_value(std::nullopt);
}

}  // namespace hocket
