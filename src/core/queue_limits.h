// The limits at which a client is refused because others are before it, by the room that has the
// queue. Every error queue_full that a client gets is made here, and check_limit() also decides
// whether there is room:
//
//   HOCKET_TRY_VOID(check_limit(queue_limits::kLiveTexts, {.used = 9, .more = 2, .max = 10}, 10));
//
// A container that refuses by itself, such as a mailbox, needs the error alone: queue_full().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "core/retry_after.h"

namespace hocket {

template <class... Numbers>
struct QueueLimit {
  fmt::format_string<Numbers...> text;
  std::string_view fix;
};

template <class... Numbers, class... Given>
Error queue_full(const QueueLimit<Numbers...>& limit, Given... numbers) {
  static_assert(sizeof...(Numbers) == sizeof...(Given));
  return error(ErrorCode::queue_full, limit.text, static_cast<Numbers>(numbers)...)
      .with_fix(std::string(limit.fix));
}

// A queue's use when `more` come.
struct QueueUse {
  int64_t used = 0, more = 1, max = 0;

  bool has_room() const { return more <= max - used; }
};

// `numbers` are those of the limit's text. Errors: queue_full if there is no room.
template <class... Numbers, class... Given>
Result<void> check_limit(const QueueLimit<Numbers...>& limit, QueueUse use, Given... numbers) {
  if (use.has_room()) return {};
  return fail(queue_full(limit, numbers...));
}

namespace queue_limits {

using Plain = QueueLimit<>;
using WithNumber = QueueLimit<int64_t>;
using WithNumbers = QueueLimit<int64_t, int64_t>;

// server/http
inline constexpr WithNumber kConnections{"all {} connections are in use", ""};
// server/generation/task_pool.h
inline constexpr WithNumber kUnreadOfClient{"{} requests of this client wait to be read",
                                            kRetryAfterFix};
inline constexpr WithNumber kUnread{"{} requests wait to be read", kRetryAfterFix};
// server/ranks
inline constexpr WithNumber kForwarded{"{} requests are with other ranks", kRetryAfterFix};
// server/reply
inline constexpr WithNumber kLiveTexts{"{} texts are under way", kRetryAfterFix};
// engine: half of --max-queued-requests
inline constexpr WithNumbers kLaterTexts{
    "{} texts wait already; the second and later texts of a request may wait only below {}, half "
    "of the queue",
    "ask again later, send fewer texts in a request, or raise --max-queued-requests"};
// engine, for all ranks together, and policy/scheduler, for one
inline constexpr WithNumbers kRequests{"{} requests are waiting already, the limit is {}",
                                       "ask again later, or raise --max-queued-requests"};
// engine/queue_places.h
inline constexpr WithNumbers kShareOfClient{
    "{} texts of this client wait already, which is its share of the queue: {} places are left for "
    "others",
    "ask again later, or raise --max-queued-requests"};
inline constexpr Plain kMailbox{"the engine's mailbox is full", "ask again later"};
// engine/grammar
inline constexpr WithNumbers kGrammars{
    "{} grammars wait to be compiled already, or {} of this client", "ask again later"};
inline constexpr WithNumber kLargeGrammars{"{} large grammars wait to be compiled already",
                                           "ask again later, or for a smaller grammar"};
// policy/scheduler, of one rank
inline constexpr QueueLimit<int64_t, int64_t, int64_t> kTokensOfRank{
    "{} tokens wait already; {} more exceed the limit of {}",
    "try again later, or raise --max-queued-tokens"};
inline constexpr WithNumber kDisplaced{
    "{} requests wait already, and this one gave its place to a request of larger priority",
    "try again later, or raise --max-queued-requests"};
// engine, sessions by name
inline constexpr WithNumber kSavedSessions{"{} sessions are saved already",
                                           "delete one: POST /sessions/NAME/delete"};
inline constexpr WithNumbers kSavedSessionBytes{
    "the lists of saved sessions take {} bytes already, of at most {}",
    "delete one: POST /sessions/NAME/delete"};
inline constexpr Plain kPageReads{"too many prompts wait for their pages",
                                  "ask again when they are read"};
inline constexpr WithNumber kPrefills{"{} prompts are computed for others already",
                                      "ask another service"};
// server/reports/kv_event_feed.h
inline constexpr WithNumber kListeners{"{} listen already", "one listener can serve many"};

}  // namespace queue_limits

}  // namespace hocket
