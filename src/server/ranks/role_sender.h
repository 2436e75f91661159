// Tells ranks that lack it which role (--disaggregation-mode) an admin has given to the service:
// those that join later, which start with that of the flag, and those that were away or did not
// answer. Ranks of two roles would wait for each other's steps.   Thread: client.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/pages/prefill_role.h"
#include "server/ranks/rank_peers.h"

namespace hocket {

// Returns the body with which a rank sends another the role's last change to
// /disaggregation_mode: {"mode": "decode", "change": 3}.
std::string role_change_body(const RoleChange& change);

// Returns true if `rank` sends its last change to `receiver`: one of the two is the lowest member.
bool is_role_sender(int rank, int receiver, const RankSet& present);

class RoleSender {
 public:
  // Time from one try to the next, and the limit of each.
  static constexpr Duration kRetry = std::chrono::seconds(1);

  // Borrows both, and uses the calls of `peers` once they have begun. role: null if the service
  // shares no pages.
  RoleSender(RankPeers& peers, const PrefillRole* role);
  // Sends the last change to members that are not known to have it: to all if this rank is the
  // lowest member, else to the lowest, which passes it on.
  void check(const ClusterView& view);

 private:
  struct Receiver {
    Mutex mutex;
    std::string boot_id HOCKET_GUARDED_BY(mutex);  // names the process that has `told`
    RoleChange told HOCKET_GUARDED_BY(mutex);
    std::string refuser HOCKET_GUARDED_BY(mutex);  // boot id whose refusal is in the log
    bool is_under_way HOCKET_GUARDED_BY(mutex) = false;
    TimePoint next HOCKET_GUARDED_BY(mutex){};
  };
  class Sink;
  void tell(const Identity& rank, const RoleChange& change);

  RankPeers& peers_;
  const PrefillRole* const role_;
  std::vector<std::shared_ptr<Receiver>> ranks_;  // the calls under way own them, too
};

}  // namespace hocket
