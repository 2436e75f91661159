#include "engine/pages/idle_redis_links.h"

#include <utility>

namespace hocket {
namespace {

bool answers(RedisLink& link) {
  return link.send({"PING"}) && link.receive();
}

}  // namespace

std::optional<IdleRedisLinks::IdleLink> IdleRedisLinks::take_newest() {
  const MutexLock lock(mutex_);
  if (links_.empty()) return std::nullopt;
  IdleLink newest = std::move(links_.back());
  links_.pop_back();
  return newest;
}

// A PING that is lost takes the whole limit of an answer. The other links are older, so none of
// them is asked then.
IdleRedisLinks::Link IdleRedisLinks::take() {
  while (auto newest = take_newest()) {
    if (!newest->link->is_connected()) continue;
    const bool is_trusted = RealClock().now() - newest->since < trusted_for_;
    if (is_trusted || answers(*newest->link)) return std::move(newest->link);
    clear();
  }
  return nullptr;
}

void IdleRedisLinks::give_back(Link link) {
  const MutexLock lock(mutex_);
  if (links_.size() < kMax) links_.push_back({.link = std::move(link), .since = RealClock().now()});
}

void IdleRedisLinks::clear() {
  const MutexLock lock(mutex_);
  links_.clear();
}

}  // namespace hocket
