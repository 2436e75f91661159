// Detects cut links between this rank and the others. The coordinator receives heartbeats of all
// ranks, but they do not show that a link between two other ranks is cut. So each rank sends every
// other rank a small datagram with each heartbeat, and reports a rank as lost when its datagrams
// stop.
//
//   rank 1  -- "hocket link" | from | to | number | boot id | HMAC of these -->  rank 2  4 a second
//
// A rank can count as silent only after one of its datagrams has arrived, since a firewall may drop
// all of them; a cut is then noticed by the time limit of the data plane. Ranks that are not
// members send datagrams too. Each heartbeat names the ranks whose datagrams have stopped
// (Heartbeat::unreachable), so that no rank is taken back over a cut link. Datagrams are signed
// with the cluster's token and numbered in ascending order by each process, so a recorded one
// counts once. A flood of forged datagrams also delays the detection of a cut until that limit: the
// kernel then drops genuine ones among them, so a silence proves nothing. The port of a rank is in
// its identity, as `address`: "HOST:PORT", or "PORT" while it coordinates. Thread: the control
// plane's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cluster/control_role.h"

namespace hocket {

inline constexpr uint64_t kLinkToken = UINT64_MAX;  // the poller's token for its socket

// Returns the address in an identity ("HOST:PORT"), for a socket of `family`. A socket of IPv6
// reaches IPv4 by addresses as ::ffff:10.0.0.1. Errors: bad_value if such a socket does not reach
// it, with the reason.
Result<SocketAddress> datagram_address(std::string_view address, int family);

class LinkMonitor {
 public:
  static constexpr int kMaxRead = 256;  // datagrams of one receive()
  // This number of forged datagrams at once is a flood; with fewer the socket's buffer has room
  // left.
  static constexpr int kFlood = 32;

  // Takes a free port. Without one it watches nothing, which is logged.
  LinkMonitor(const ClusterOptions& options, const Identity& self);

  const Fd& socket() const { return socket_; }
  // Returns the port as text; empty if there is none.
  std::string port() const;
  // Reads at most kMaxRead of the datagrams that have arrived; the poller reports the others again.
  void receive(TimePoint now);
  // Sends datagrams that are due. If this rank is a member of `view`, returns a member whose
  // datagrams arrived before and have stopped for LivenessLimits::lost_after.
  struct SilentRank {
    int rank = 0;
    Duration silence{};
  };
  std::optional<SilentRank> tick(const ClusterView& view, TimePoint now);
  // Returns the ranks, members or not, whose datagrams arrived before and have stopped for
  // LivenessLimits::suspect_after.
  RankSet unreachable(TimePoint now) const;
  TimePoint next_deadline() const { return next_heartbeat_; }

 private:
  using BootId = std::array<char, 16>;  // shorter ones end in zeros
  // The last datagram of a process.
  struct LastDatagram {
    BootId boot_id{};
    uint64_t number = 0;
    TimePoint when{};
  };
  struct Peer {
    std::string boot_id;
    std::string published_address;         // Identity::address
    std::optional<SocketAddress> address;  // nullopt: it cannot be sent to
    bool is_heard = false;
    TimePoint last_heard{};
    uint64_t number = 0;  // the one of its last datagram
    LastDatagram other;   // another process of this rank: one before, or one not known yet
  };
  static BootId field_of(std::string_view boot_id);
  // Returns false if the datagram arrived before.
  bool note(Peer& peer, const LastDatagram& heard);
  void follow(const ClusterView& view, TimePoint now);
  void send_to(int rank);

  const ClusterOptions options_;
  const int rank_;
  const BootId boot_id_;
  Fd socket_;
  std::vector<Peer> peers_;
  RankSet judged_;                         // the members of the view
  std::optional<TimePoint> serves_since_;  // they serve; nullopt: a rank is waited for
  std::optional<TimePoint> last_flood_;    // nullopt: there was none
  uint64_t number_ = 0;
  TimePoint next_heartbeat_{};
};

}  // namespace hocket
