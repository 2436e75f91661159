// Conversations by name, whose prefixes are evicted behind all others until they have been idle for
// a time.
//
//   a request of the session ends well -> protect() -> .. idle for a time, or end() -> like others
//
// Nothing is pinned, so a session never delays a request: its pages are evicted when no others are
// left. Bounds: kMax sessions, and a share of the pages; beyond either the session is dropped first
// that has been idle the longest. A session that is longer than its part of the share has its
// beginning protected, so that one long session does not end all others. The first that is so long
// is logged.
// Owner: the scheduler. Thread: engine.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "policy/cache/radix_cache.h"

namespace hocket {

// A hash of a client's name and its name for the session; zero: no session.
using SessionKey = CacheNamespace;

// The tokens of a session up to the end of its last turn, whole pages, whether or not all of them
// are protected.
struct SessionTokens {
  CacheNamespace name_space;
  std::vector<TokenId> tokens;
};

class Sessions {
 public:
  static constexpr size_t kMax = 4096;
  static constexpr int64_t kMaxLong = 2;  // number of sessions that may be as long as one may be

  struct Options {
    Duration timeout{};      // 0: no session is protected
    int64_t max_tokens = 0;  // limit of all sessions; shared beginnings count for each
  };
  // `cache` outlives it.
  Sessions(RadixCache& cache, Options options) : cache_(cache), options_(options) {}

  // Protects `tokens`, whole pages of the tree, in place of those of the session before; no tokens
  // leave the session as it is.
  void protect(SessionKey key, const CacheNamespace& name_space, std::span<const TokenId> tokens,
               TimePoint now);
  // Returns null if the session is not known.
  const SessionTokens* find(SessionKey key) const;
  // Returns false if the session is not known.
  bool end(SessionKey key);
  // Ends the sessions that have been idle for too long.
  void expire(TimePoint now);
  void clear();
  int size() const { return static_cast<int>(sessions_.size()); }

 private:
  struct Session {
    SessionTokens prefix;
    int64_t len = 0;     // tokens at the beginning that are protected
    uint64_t until = 0;  // nanoseconds of the clock, unique
    std::span<const TokenId> protected_part() const {
      return std::span(prefix.tokens).first(static_cast<size_t>(len));
    }
  };
  void end_first();
  void protect_others(const Session& ended);

  RadixCache& cache_;
  const Options options_;
  std::unordered_map<SessionKey, Session> sessions_;
  std::map<uint64_t, SessionKey> by_end_;  // Session::until
  int64_t num_tokens_ = 0;
  bool warned_ = false;  // one session was too long
};

}  // namespace hocket
