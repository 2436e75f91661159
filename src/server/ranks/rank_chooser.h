// Chooses the rank of a request by policy/routing/request_router.h, from the loads that ranks send
// each other with every step and from the requests that this rank forwarded since. RankRouter owns
// it, and its lock guards it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cluster/control_plane.h"
#include "engine/engine.h"
#include "policy/routing/request_router.h"
#include "server/generation/prepared_request.h"
#include "server/ranks/rank_peers.h"

namespace hocket {

class RankChooser {
 public:
  // Borrows both.
  RankChooser(const RankPeers& peers, const Engine& engine, RoutingPolicy routing);

  // Returns the rank that shall have the request. Errors: lost_rank when no rank takes requests.
  Result<int> choose(const PreparedRequest& prepared, const ClusterView& view);
  // Adds the load of a request that was forwarded, until that of its rank includes it.
  void add(uint64_t ticket, int rank, const RankLoad& load);
  void remove(uint64_t ticket) { forwarded_.erase(ticket); }
  // Avoids a rank that refused a request, for a short time, or until stop_avoiding().
  void avoid(int rank);
  void stop_avoiding();
  // The prefix cache of the rank, or of all ranks, has become empty.
  void forget(int rank) { router_.forget(rank); }
  void forget_all();

 private:
  struct Forwarded {
    int rank = 0;
    RankLoad load;
    TimePoint since{};
    bool in_load = false;  // true: the load that its rank sends includes it
  };
  std::vector<RankLoad> loads(const ClusterView& view);

  const RankPeers& peers_;
  const Engine& engine_;
  RequestRouter router_;
  std::unordered_map<uint64_t, Forwarded> forwarded_;  // by ticket
  // By rank: the load it sent last, and until when it is avoided after a refusal.
  std::vector<RankLoad> last_loads_;
  std::vector<TimePoint> avoid_until_;
};

}  // namespace hocket
