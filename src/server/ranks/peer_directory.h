// Keeps the address and the key of each other rank's port for ranks. Each rank publishes its own in
// the cluster's store as `http/RANK` = "BOOT-ID HOST:PORT KEY".
//
// The boot id distinguishes the address of a rank's earlier process from that of the current one.
// The store is lost with rank 0, so each rank publishes its entry again after every change of the
// members. A rank publishes its first entry before its engine connects to the other ranks, so all
// entries exist once the ranks are connected. If the store does not answer then, it publishes the
// entry later. Owns the thread "peers", because calls to the store block. Thread: any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/thread.h"
#include "cluster/control_plane.h"
#include "cluster/socket.h"

namespace hocket {

struct PeerEndpoint {
  SocketAddress address;
  std::string key;  // known to the ranks only
};

class PeerDirectory {
 public:
  // Publishes the address `own` and the `key` of this rank. Returns when the store has them; if the
  // store does not answer it returns as well, and the thread tries again. Borrows the control
  // plane.
  PeerDirectory(ControlPlane& cluster, const HostPort& own, std::string_view key);
  ~PeerDirectory();

  // Returns nullopt until the entry of the peer's current process is known.
  std::optional<PeerEndpoint> endpoint(const Identity& peer) const;
  // The rank did not answer at its address: drops the address and looks it up again.
  void forget(int rank);
  void stop();

 private:
  struct Entry {
    std::string boot_id;
    std::optional<PeerEndpoint> endpoint;
    TimePoint not_before{};    // the address in the entry could not be used; not read again before
    bool is_reported = false;  // the log has said that
  };
  void run();
  void publish();
  bool look_up(int rank, const Identity& identity);
  bool look_up_all(const ClusterView& view);

  ControlPlane& cluster_;
  const std::string own_;
  uint64_t published_ = 0;  // number of the change after which this rank published; 0: never
  size_t first_ = 0;        // the rank that is looked up first
  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_ HOCKET_GUARDED_BY(mutex_);  // by rank
  bool stopping_ HOCKET_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace hocket
