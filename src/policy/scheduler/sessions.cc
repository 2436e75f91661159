#include "policy/scheduler/sessions.h"

#include <utility>

namespace hocket {

void Sessions::keep(SessionKey key, const CacheNamespace& name_space,
                    std::span<const TokenId> tokens, TimePoint now) {
  if (key == SessionKey() || options_.timeout <= Duration(0)) return;
  end(key);
  if (tokens.empty() || std::ssize(tokens) > options_.most_tokens) return;
  while (sessions_.size() >= kMost || num_tokens_ + std::ssize(tokens) > options_.most_tokens)
    end_first();
  auto until = static_cast<uint64_t>((now + options_.timeout).time_since_epoch().count());
  while (by_end_.contains(until)) ++until;
  cache_.keep(name_space, tokens, until);
  sessions_[key] = {{name_space, {tokens.begin(), tokens.end()}}, until};
  by_end_[until] = key;
  num_tokens_ += std::ssize(tokens);
}

const SessionTokens* Sessions::find(SessionKey key) const {
  const auto found = sessions_.find(key);
  return found == sessions_.end() ? nullptr : &found->second.kept;
}

bool Sessions::end(SessionKey key) {
  const auto found = sessions_.find(key);
  if (found == sessions_.end()) return false;
  const Session& session = found->second;
  cache_.let_go(session.kept.name_space, session.kept.tokens, session.until);
  num_tokens_ -= std::ssize(session.kept.tokens);
  by_end_.erase(session.until);
  sessions_.erase(found);
  return true;
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
