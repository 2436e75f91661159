// LocalEngine::change_session(), by which clients save, restore and end sessions, and its part in
// each rank.
#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "engine/local_engine.h"
#include "engine/session_files.h"
#include "engine/step.h"

namespace hocket {
namespace {

std::unexpected<Error> unknown_session() {
  return fail(error(ErrorCode::not_found, "no such session is known here")
                  .with_fix("requests with this session_id make one, until it has been idle for "
                            "--session-timeout"));
}

// Waits for a rank. Errors: request_timeout; shutting_down.
Result<std::optional<SessionTokens>> answer_of(std::future<std::optional<SessionTokens>>& rank,
                                               TimePoint deadline) {
  if (rank.wait_for(std::max(deadline - RealClock().now(), Duration(0))) !=
      std::future_status::ready)
    return fail(error(ErrorCode::request_timeout, "the session is not done after {:.0f} s",
                      to_seconds(Engine::kSessionWait))
                    .with_fix("ask again when the server has less to do"));
  try {
    return rank.get();
  } catch (const std::future_error&) {
    return fail(ErrorCode::shutting_down, "the server is shutting down");
  }
}

}  // namespace

void RankStep::take_in(SessionOrder& order) {
  using Answer = std::promise<std::optional<SessionTokens>>;
  const SessionTokens* kept = scheduler_.session_tokens(order.session);
  if (order.action == SessionAction::end) {
    order.answer.set_value(kept != nullptr ? std::optional(*kept) : std::nullopt);
    scheduler_.end_session(order.session);
    return;
  }
  const auto answer = std::make_shared<Answer>(std::move(order.answer));
  const auto page_tokens = static_cast<size_t>(runner_->info().page_tokens);
  if (order.action == SessionAction::save) {
    if (kept == nullptr || tier_ == nullptr) return answer->set_value(std::nullopt);
    return tier_->save(*kept, scheduler_, [answer, page_tokens, saved = *kept](int num) mutable {
      saved.tokens.resize(static_cast<size_t>(num) * page_tokens);
      answer->set_value(std::move(saved));
    });
  }
  const bool ordered =
      tier_ != nullptr &&
      tier_->restore(order.tokens, scheduler_,
                     [this, answer, key = order.session, found = order.tokens]() mutable {
                       const int len = scheduler_.held_len(found.name_space, found.tokens);
                       found.tokens.resize(static_cast<size_t>(len));
                       scheduler_.keep_session(key, found.name_space, found.tokens, clock_.now());
                       answer->set_value(std::move(found));
                     });
  if (!ordered) answer->set_value(std::nullopt);
}

Result<SessionDone> LocalEngine::change_session(const SessionAsk& ask) {
  if (ask.action == SessionAction::end) return end_session(ask);
  if (!tier_ || !tier_->files)
    return fail(error(ErrorCode::invalid_request,
                      "sessions are saved in files, and there is no "
                      "folder for them")
                    .with_fix("start the server with --kv-cache-dir DIR"));
  if (!session_mutex_.try_lock())
    return fail(error(ErrorCode::queue_full, "another session is being saved or restored")
                    .with_fix("ask again when it is done"));
  const MutexLock lock(session_mutex_, std::adopt_lock);
  return ask.action == SessionAction::save ? save_session(ask) : restore_session(ask);
}

// The rank with the longest form of the session counts.
Result<SessionDone> LocalEngine::save_session(const SessionAsk& ask) {
  std::vector<std::future<std::optional<SessionTokens>>> answers;
  tell_all([&] {
    SessionOrder order{.action = ask.action, .session = ask.session};
    answers.push_back(order.answer.get_future());
    return order;
  });
  const TimePoint deadline = RealClock().now() + kSessionWait;
  std::optional<SessionTokens> longest;
  for (auto& one : answers) {
    HOCKET_TRY(auto saved, answer_of(one, deadline));
    if (saved && (!longest || saved->tokens.size() > longest->tokens.size()))
      longest = std::move(saved);
  }
  if (!longest) return unknown_session();
  HOCKET_TRY(const int64_t bytes,
             SessionFiles(tier_->files->folder() / "sessions").write(ask.name, *longest));
  return SessionDone{.tokens = std::ssize(longest->tokens), .bytes = bytes};
}

Result<SessionDone> LocalEngine::restore_session(const SessionAsk& ask) {
  auto saved = SessionFiles(tier_->files->folder() / "sessions").read(ask.name);
  if (!saved)
    return fail(error(ErrorCode::not_found, "no session was saved under this name")
                    .with_fix("save it first, with the same key and the same model"));
  int chosen = 0;
  if (router_) {
    const MutexLock lock(router_mutex_);
    HOCKET_TRY(chosen, router_->choose(saved->name_space, saved->tokens, loads()));
  }
  const int64_t bytes = std::ssize(saved->tokens) * static_cast<int64_t>(sizeof(TokenId));
  SessionOrder order{.action = ask.action, .session = ask.session, .tokens = *std::move(saved)};
  auto answer = order.answer.get_future();
  ranks_[static_cast<size_t>(chosen)]->push_control(std::move(order));
  HOCKET_TRY(const auto restored, answer_of(answer, RealClock().now() + kSessionWait));
  if (!restored)
    return fail(error(ErrorCode::queue_full, "too many prompts wait for their pages")
                    .with_fix("ask again when they are read"));
  return SessionDone{.tokens = std::ssize(restored->tokens), .bytes = bytes};
}

Result<SessionDone> LocalEngine::end_session(const SessionAsk& ask) {
  std::vector<std::future<std::optional<SessionTokens>>> answers;
  tell_all([&] {
    SessionOrder order{.action = ask.action, .session = ask.session};
    answers.push_back(order.answer.get_future());
    return order;
  });
  const TimePoint deadline = RealClock().now() + kSessionWait;
  bool known = false;
  SessionDone done;
  for (auto& one : answers) {
    HOCKET_TRY(const auto ended, answer_of(one, deadline));
    known |= ended.has_value();
    if (ended) done.tokens = std::max(done.tokens, std::ssize(ended->tokens));
  }
  if (tier_ && tier_->files)
    known |= SessionFiles(tier_->files->folder() / "sessions").remove(ask.name);
  if (!known) return unknown_session();
  return done;
}

}  // namespace hocket
