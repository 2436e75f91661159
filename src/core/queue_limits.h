// The limits at which a client is refused because others are before it. The room that has the queue
// has the text of its limit. Every error queue_full that a client gets is made here, and
// check_limit() also decides whether there is room:
//
//   constexpr QueueLimit<int64_t> kTextLimit{"{} texts are under way", "try again later"};
//   HOCKET_TRY_VOID(check_limit(kTextLimit, {.used = 9, .more = 2, .max = 10}, 10));
//
// A container that refuses by itself, such as a mailbox, needs the error alone: queue_full().
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace hocket {

template <class... Numbers>
struct QueueLimit {
  fmt::format_string<Numbers...> text;  // says how many are before the client
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

}  // namespace hocket
