#include "policy/scheduler/sessions.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"

namespace hocket {

void Sessions::protect(SessionKey key, const CacheNamespace& name_space,
                       std::span<const TokenId> tokens, TimePoint now) {
  if (key == SessionKey() || options_.timeout <= Duration(0) || tokens.empty()) return;
  end(key);
  const int64_t len = std::min(std::ssize(tokens), options_.max_tokens / kMaxLong);
  while (sessions_.size() >= kMax || num_tokens_ + len > options_.max_tokens) end_first();
  auto until = static_cast<uint64_t>((now + options_.timeout).time_since_epoch().count());
  while (by_end_.contains(until)) ++until;
  cache_.protect(name_space, tokens.first(static_cast<size_t>(len)), until);
  Session& session = sessions_[key];
  session = {.prefix = {name_space, {tokens.begin(), tokens.end()}}, .len = len, .until = until};
  by_end_[until] = key;
  num_tokens_ += len;
  if (len < std::ssize(tokens) && !std::exchange(warned_, true))
    log::warning(
        "a session has {} tokens, and the cache keeps at most {} of one session before others: the "
        "rest may be evicted and computed again. To fix it: a larger --max-total-tokens. This is "
        "logged once",
        tokens.size(), len);
}

const SessionTokens* Sessions::find(SessionKey key) const {
  const auto found = sessions_.find(key);
  return found == sessions_.end() ? nullptr : &found->second.prefix;
}

bool Sessions::end(SessionKey key) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return false;
  const Session session = std::move(found->second);
  sessions_.erase(found);
  by_end_.erase(session.until);
  num_tokens_ -= session.len;
  cache_.unprotect(session.prefix.name_space, session.protected_part(), session.until);
  protect_others(session);
  return true;
}

// Protects the beginnings that other sessions share with one that has ended: the end of its
// protection also ended that of shared beginnings which are protected for a shorter time. Sessions
// that end last come first; a later one adds only pages that no session before it has protected.
void Sessions::protect_others(const Session& ended) {
  const std::span<const TokenId> tokens = ended.protected_part();
  size_t done = 0;
  for (auto at = std::make_reverse_iterator(by_end_.lower_bound(ended.until));
       at != by_end_.rend() && done < tokens.size(); ++at) {
    const Session& other = sessions_.at(at->second);
    if (other.prefix.name_space != ended.prefix.name_space) continue;
    const size_t common = common_len(other.protected_part(), tokens);
    if (common <= done) continue;
    cache_.protect(ended.prefix.name_space, tokens.first(common), at->first);
    done = common;
  }
}

void Sessions::end_first() {
  end(SessionKey(by_end_.begin()->second));
}

void Sessions::expire(TimePoint now) {
  const auto past = static_cast<uint64_t>(now.time_since_epoch().count());
  while (!by_end_.empty() && by_end_.begin()->first <= past) end_first();
}

void Sessions::clear() {
  while (!by_end_.empty()) end_first();
}

}  // namespace hocket
