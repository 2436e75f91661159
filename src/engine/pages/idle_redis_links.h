// The connections to a Redis that nobody uses now. Servers and proxies close those that are idle
// for long, and firewalls forget them, so each is checked before its next use.   Thread: any.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/pages/redis_link.h"

namespace hocket {

class IdleRedisLinks {
 public:
  using Link = std::unique_ptr<RedisLink>;
  static constexpr size_t kMax = 16;
  // One that was idle for longer has to answer a PING first.
  static constexpr Duration kTrustedFor = std::chrono::seconds(5);

  explicit IdleRedisLinks(Duration trusted_for) : trusted_for_(trusted_for) {}
  // Returns the one that was used last among those that are still connected; null if none is.
  Link take();
  // Precondition: link->is_whole().
  void give_back(Link link);
  void clear();

 private:
  struct IdleLink {
    Link link;
    TimePoint since;
  };
  std::optional<IdleLink> take_newest();

  const Duration trusted_for_;
  Mutex mutex_;
  std::vector<IdleLink> links_ HOCKET_GUARDED_BY(mutex_);  // the newest use last
};

}  // namespace hocket
