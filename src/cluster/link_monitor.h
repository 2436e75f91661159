// Hears whether the links between this rank and the others carry anything. The coordinator hears
// every rank, but no rank hears a cut between two others: so each of these sends every other one a
// small datagram with each heartbeat, and the first that hears a rank no longer reports it as lost.
//
//   rank 1  -- "hocket link" | from | to | number | boot id | HMAC of these -->  rank 2  4 a second
//
// A rank is judged only after it was heard once, since a firewall may drop datagrams; between ranks
// that hear none a cut is noticed by the data plane's own limit. Ranks that are out send datagrams
// too. Each rank names those that it no longer hears (Heartbeat::unreachable), so none is taken
// back over a cut link. Datagrams are signed with the cluster's token, and each has a larger number
// than those that its process sent before, so that one that was recorded counts once. A flood of
// strange ones hides a cut until that limit, too: the kernel drops true ones among them, so that a
// silence says nothing. The port of a rank is in its identity, as `address`: "HOST:PORT", or "PORT"
// while it coordinates. Thread: the control plane's.
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
  // This number of strange ones at once is a flood. Where fewer wait, the socket's buffer has room.
  static constexpr int kFlood = 32;

  // Takes a free port. Without one it watches nothing, which is logged.
  LinkMonitor(const ClusterOptions& options, const Identity& self);

  const Fd& socket() const { return socket_; }
  // Returns the port as text; empty if there is none.
  std::string port() const;
  // Reads at most kMaxRead of the datagrams that have come; the poller tells of the others again.
  void receive(TimePoint now);
  // Sends datagrams that are due. Returns a member of `view` that was heard before and has been
  // silent for LivenessLimits::lost_after, if both are members.
  struct SilentRank {
    int rank = 0;
    Duration silence{};
  };
  std::optional<SilentRank> tick(const ClusterView& view, TimePoint now);
  // Returns the ranks that were heard before and have been silent for
  // LivenessLimits::suspect_after, members or not.
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
  // Returns false if the datagram was heard before.
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
