// Tells ranks that join later which role (--disaggregation-mode) an admin has given to the service.
// They start with that of the flag, which all ranks share, and ranks of two roles would wait for
// each other's steps.   Thread: forward.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/pages/prefill_role.h"
#include "server/ranks/rank_peers.h"

namespace hocket {

class RoleSender {
 public:
  // Time from one try to the next, and the limit of each.
  static constexpr Duration kRetry = std::chrono::seconds(1);

  // Borrows both, and uses the calls of `peers` once they have begun. role: null if the service
  // shares no pages.
  RoleSender(RankPeers& peers, const PrefillRole* role);
  // Tells the members that joined since the last call. Those of the first call with this rank among
  // the members were there when the role was last changed, or will be.
  void check(const ClusterView& view);

 private:
  struct Receiver {
    Mutex mutex;
    std::string boot_id HOCKET_GUARDED_BY(mutex);  // names the process that has the role
    bool is_under_way HOCKET_GUARDED_BY(mutex) = false;
    TimePoint next HOCKET_GUARDED_BY(mutex){};
  };
  class Sink;
  void tell(const Identity& rank);

  RankPeers& peers_;
  const PrefillRole* const role_;
  bool has_begun_ = false;
  std::vector<std::shared_ptr<Receiver>> ranks_;  // the calls under way own them, too
};

}  // namespace hocket
