#include "engine/session_calls.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "compute/kv/page_folders.h"
#include "core/queue_limits.h"

namespace hocket {
namespace {

constexpr QueueLimit<> kPageReadLimit{"too many prompts wait for their pages",
                                      "ask again when they are read"};

std::unexpected<Error> unknown_session() {
  return fail(
      error(ErrorCode::not_found, "no such session is known here")
          .with_fix(
              "send a request with this session_id first, or for /slots/N with \"id_slot\": N. "
              "The session is known when that "
              "request has ended with a whole page of tokens (--page-size), until it has been "
              "idle for --session-timeout"));
}

using RankAnswer = std::optional<RankSession>;

// Waits for a rank, until `limit` after the question. Errors: request_timeout; shutting_down.
Result<RankAnswer> answer_of(std::future<RankAnswer>& rank, TimePoint deadline,
                             Duration limit = Engine::kSessionWait) {
  if (rank.wait_for(std::max(deadline - RealClock().now(), Duration(0))) !=
      std::future_status::ready)
    return fail(error(ErrorCode::request_timeout,
                      "the session request did not finish within {:.0f} s", to_seconds(limit))
                    .with_fix("ask again when the server has less to do"));
  try {
    return rank.get();
  } catch (const std::future_error&) {
    return fail(ErrorCode::shutting_down, "the server is shutting down");
  }
}

std::unexpected<Error> nothing_left() {
  return fail(error(ErrorCode::not_found,
                    "the session is not saved, and what was saved before stays: it was evicted "
                    "from memory, and files cannot restore it either")
                  .with_fix("send the conversation again, and save it then"));
}

std::unexpected<Error> not_saved() {
  return fail(error(ErrorCode::not_found, "no session was saved under this name")
                  .with_fix("save it first, with the same key and the same model"));
}

std::unexpected<Error> not_all_written(const RankSession& answer) {
  return fail(
      error(ErrorCode::io,
            "the session is not saved, and what was saved before stays: files can restore {} of "
            "its {} tokens, and memory has more",
            answer.saved_len, answer.kept.tokens.size())
          .with_fix(fmt::format(
              "save again, which writes pages whose files were deleted. If it fails again, the "
              "server's log says why pages are not written, such as a full disk; "
              "--kv-cache-dir-gb must hold the session. Save {:.0f} s after that is fixed",
              to_seconds(PageStore::kRetryInterval))));
}

SessionFileName name_of(const SessionRequest& ask) {
  return {.owner = ask.owner, .name = ask.name};
}

}  // namespace

// Calls `call` with the files of sessions, of which it reads or writes `num_bytes`; it owns all
// else that it uses. The hold lasts until the call has ended, also behind its limit of time: a
// late write would bring a session back that was deleted meanwhile. Errors: timed_out.
template <class T>
Result<T> SessionCalls::with_files(const Hold& hold,
                                   std::move_only_function<Result<T>(const SessionFiles&)> call,
                                   size_t num_bytes) const {
  return options_.calls->run<T>(
      [hold, files = session_files(), call = std::move(call)]() mutable { return call(files); },
      FileStore::time_of(num_bytes));
}

SessionFiles SessionCalls::session_files() const {
  return {options_.files->folder() / kSessionsFolder, options_.form};
}

Result<SessionResult> SessionCalls::change(const SessionRequest& ask) {
  if (ask.action == SessionAction::find) return find(ask);
  if (ask.action != SessionAction::end && !options_.files)
    return fail(error(ErrorCode::invalid_request,
                      "sessions are saved in files, and there is no "
                      "folder for them")
                    .with_fix("start the server with --kv-cache-dir DIR"));
  if (ask.action == SessionAction::find_saved) return find_saved(ask);
  HOCKET_TRY(BusySessions::Hold begun,
             busy_.begin({.session = ask.session, .name = ask.name, .client = ask.client},
                         Engine::kSessionWait));
  const auto hold = std::make_shared<const BusySessions::Hold>(std::move(begun));
  if (ask.action == SessionAction::save) return save(ask, hold);
  return ask.action == SessionAction::restore ? restore(ask, hold) : end(ask, hold);
}

Result<SessionResult> SessionCalls::find(const SessionRequest& ask) {
  HOCKET_TRY(const auto answers, ask_ranks(ask, Engine::kFindWait));
  bool known = false;
  SessionResult found;
  for (const RankAnswer& answer : answers) {
    known |= answer.has_value();
    if (answer) found.tokens = std::max(found.tokens, answer->len);
  }
  if (!known) return unknown_session();
  return found;
}

Result<SessionResult> SessionCalls::find_saved(const SessionRequest& ask) {
  HOCKET_TRY(const auto num_tokens,
             finds_->run<std::optional<int64_t>>([files = session_files(), name = name_of(ask)] {
               return Result<std::optional<int64_t>>(files.find(name));
             }));
  if (!num_tokens) return not_saved();
  return SessionResult{.tokens = *num_tokens};
}

// Returns what was saved under the name. Errors: not_found; those of the files.
Result<SessionTokens> SessionCalls::read_saved(const SessionRequest& ask, const Hold& hold) {
  using Saved = std::optional<SessionTokens>;
  HOCKET_TRY(Saved saved, with_files<Saved>(hold, [name = name_of(ask)](const SessionFiles& files) {
               return Result<Saved>(files.read(name));
             }));
  if (!saved) return not_saved();
  return *std::move(saved);
}

// The rank with the longest form of the session counts, as far as that is still there.
Result<SessionResult> SessionCalls::save(const SessionRequest& ask, const Hold& hold) {
  HOCKET_TRY(auto answers, ask_ranks(ask));
  const auto len_of = [](const RankSession& one) {
    return std::pair(one.whole ? one.saved_len : std::ssize(one.kept.tokens), one.whole);
  };
  RankSession* longest = nullptr;
  for (RankAnswer& answer : answers)
    if (answer && (longest == nullptr || len_of(*answer) > len_of(*longest))) longest = &*answer;
  if (longest == nullptr) return unknown_session();
  if (!longest->whole) return not_all_written(*longest);
  if (longest->saved_len == 0) return nothing_left();
  longest->kept.tokens.resize(static_cast<size_t>(longest->saved_len));
  HOCKET_TRY(const int64_t bytes,
             with_files<int64_t>(
                 hold,
                 [name = name_of(ask), kept = longest->kept](const SessionFiles& files) {
                   return files.write(name, kept);
                 },
                 longest->kept.tokens.size() * sizeof(TokenId)));
  return SessionResult{.tokens = longest->saved_len, .bytes = bytes};
}

Result<SessionResult> SessionCalls::restore(const SessionRequest& ask, const Hold& hold) {
  HOCKET_TRY(SessionTokens saved, read_saved(ask, hold));
  HOCKET_TRY(const int chosen, options_.choose(saved));
  const auto num_saved = std::ssize(saved.tokens);
  SessionCommand order{.action = ask.action,
                       .session = ask.session,
                       .tokens = std::move(saved),
                       .deadline = RealClock().now() + Engine::kSessionWait};
  const TimePoint deadline = order.deadline;
  auto answer = order.answer.get_future();
  ranks_[static_cast<size_t>(chosen)]->push_control(std::move(order));
  HOCKET_TRY(const auto restored, answer_of(answer, deadline));
  if (!restored) return fail(queue_full(kPageReadLimit));
  if (restored->kept.tokens.empty())
    return fail(error(ErrorCode::not_found,
                      "nothing was restored of the {} tokens that were saved: their first page is "
                      "in no file any more, or no page of memory is free",
                      num_saved)
                    .with_fix("ask again when fewer requests run; if their files are gone, send "
                              "the conversation and save it again"));
  return SessionResult{.tokens = std::ssize(restored->kept.tokens),
                       .bytes = num_saved * static_cast<int64_t>(sizeof(TokenId))};
}

Result<SessionResult> SessionCalls::end(const SessionRequest& ask, const Hold& hold) {
  HOCKET_TRY(const auto answers, ask_ranks(ask));
  bool known = false;
  SessionResult done;
  for (const RankAnswer& ended : answers) {
    known |= ended.has_value();
    if (ended) done.tokens = std::max(done.tokens, ended->len);
  }
  if (options_.files) {
    HOCKET_TRY(const bool removed,
               with_files<bool>(hold, [name = name_of(ask)](const SessionFiles& files) {
                 return Result<bool>(files.remove(name));
               }));
    known |= removed;
  }
  if (!known) return unknown_session();
  return done;
}

// Returns the answer of each rank.
Result<std::vector<std::optional<RankSession>>> SessionCalls::ask_ranks(const SessionRequest& ask,
                                                                        Duration limit) {
  std::vector<std::future<RankAnswer>> ranks;
  for (const auto& rank : ranks_) {
    SessionCommand order{.action = ask.action, .session = ask.session};
    ranks.push_back(order.answer.get_future());
    rank->push_control(std::move(order));
  }
  const TimePoint deadline = RealClock().now() + limit;
  std::vector<RankAnswer> answers;
  for (auto& rank : ranks) {
    HOCKET_TRY(auto answer, answer_of(rank, deadline, limit));
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace hocket
