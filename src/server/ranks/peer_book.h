// Where the other ranks take requests from this one: the port that each opens besides the clients'
// one, and the key of that port, by way of the store as `http/RANK` = "BOOT-ID HOST:PORT KEY".
//
// The boot id tells a rank's old address from that of the process it is now. The store is lost with
// rank 0, so every change of who is there makes each rank say its own again.
// Owns the thread "peers", since the store is asked by waiting for it.   Thread: any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread.h"
#include "cluster/control_plane.h"
#include "cluster/socket.h"

namespace hocket {

struct PeerPlace {
  SocketAddress address;
  std::string key;  // a secret of the ranks
};

class PeerBook {
 public:
  // Tells the others that this rank is reached at `own` with `key`. Borrows the control plane.
  PeerBook(ControlPlane& cluster, const HostPort& own, std::string_view key);
  ~PeerBook();

  // nullopt while it is not known of the process that this rank is now.
  std::optional<PeerPlace> place(const Identity& peer) const;
  // The rank did not answer there: forgets its place and asks for it again.
  void forget(int rank);
  void stop();

 private:
  struct Entry {
    std::string boot_id;
    std::optional<PeerPlace> place;
    TimePoint asked{};
  };
  void run();
  bool publish();
  void look_up(int rank, const Identity& identity);

  ControlPlane& cluster_;
  const std::string own_;
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Entry> entries_;  // by rank
  bool stopping_ = false;
  Thread thread_;
};

}  // namespace hocket
