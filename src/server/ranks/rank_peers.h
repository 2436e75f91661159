// The other ranks as this one reaches them: which of them are there, the address and key of each
// one's port for ranks, and the calls to these ports.   Thread: any.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "cluster/control_plane.h"
#include "server/http/http_client.h"
#include "server/ranks/peer_directory.h"

namespace hocket {

class RankPeers {
 public:
  // Borrows the control plane.
  explicit RankPeers(ControlPlane& cluster);

  // Begins to make calls, at most `max_calls` at a time. `on_tick` runs ten times a second, on the
  // thread client. Call it once, before client().
  void begin_calls(size_t max_calls, std::function<void()> on_tick);
  // Publishes the address `own` and the `key` of this rank, and looks up those of the others. Call
  // it once.
  void open(const HostPort& own, std::string_view key);
  // Ends all calls and the threads.
  void stop();

  int rank() const { return cluster_.self().rank; }
  int num_ranks() const { return cluster_.self().num_ranks; }
  // Returns the newest view; the same object as long as nothing has changed.
  std::shared_ptr<const ClusterView> view();
  // Returns when the rank's process was lost; the beginning of time if another one joined since.
  TimePoint lost_at(int rank) const;
  // Returns nullopt until the address of the peer's current process is known.
  std::optional<PeerEndpoint> endpoint_of(const Identity& peer) const;
  // The rank did not answer at its address: looks it up again.
  void forget_address(int rank);

  HttpClient& client() { return *client_; }
  // Returns a call with path, query and body of the request, in the name of its principal.
  HttpCall call_to(const PeerEndpoint& to, const HttpRequest& asked) const;

 private:
  ControlPlane& cluster_;
  mutable Mutex mutex_;
  std::shared_ptr<const ClusterView> view_ HOCKET_GUARDED_BY(mutex_);
  uint64_t num_changes_ HOCKET_GUARDED_BY(mutex_) = 0;
  std::vector<TimePoint> lost_at_ HOCKET_GUARDED_BY(mutex_);  // by rank
  std::unique_ptr<PeerDirectory> directory_ HOCKET_GUARDED_BY(mutex_);
  std::unique_ptr<HttpClient> client_;
};

}  // namespace hocket
