// The coordinator's role: listens, accepts ranks, receives their heartbeats, sends the view to all,
// keeps the store. With etcd it announces an epoch once the seat has taken it (elected_role.h);
// until then its view says that the last epoch is over. A connection that has not joined is closed
// after ClusterOptions::handshake. It is also closed if it sends more than 4 KiB before its proof.
// If there are more than max_strangers of them, the oldest is closed: a rank joins within three
// round trips, five with TLS, so a flood must be faster than that to keep it out. Thread: the
// control plane's.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/log_limit.h"
#include "cluster/control_role.h"
#include "cluster/store.h"

namespace hocket {

class Coordinator final : public ControlRole {
 public:
  // Starts to listen at `address`, whose name may be unknown for `patience`. Errors: port_in_use,
  // io; unauthorized without a token at an address that is not loopback.
  static Result<Fd> listen(const ClusterOptions& options, const HostPort& address,
                           Duration patience);
  struct Start {
    Fd listener;                         // accepts ranks
    std::optional<uint32_t> last_epoch;  // if set, no other epoch is announced before grant()
    bool began = false;                  // as ClusterView::began
    int replicas = -1;                   // as ClusterView::replicas
  };
  Coordinator(const ClusterOptions& options, const Identity& self, Poller& poller, Shared& shared,
              Start start);
  void on_event(uint64_t token, uint32_t events, TimePoint now) override;
  void on_command(ControlCommand command, TimePoint now) override;
  void on_tick(TimePoint now) override;
  TimePoint next_deadline() const override;
  void leave(const Error& why) override;

  // Allows this rank to announce epochs up to this one.
  void grant(uint32_t epoch) { granted_ = std::max(granted_, epoch); }
  uint32_t granted_epoch() const { return granted_; }
  // Returns the epoch of its members; it is announced once it is granted.
  uint32_t wanted_epoch() const { return membership_.view().epoch; }
  // Returns the view that is sent to the ranks: it names no epoch that was not granted.
  ClusterView announced() const;

  uint16_t port() const { return local_address(listener_).port(); }

 private:
  enum class Phase : uint8_t { proof, join, member, closing };
  struct Session {
    std::unique_ptr<Connection> connection;
    std::string peer;  // address of the other side
    Phase phase = Phase::proof;
    Nonce nonce{};
    int rank = -1;
    TimePoint until{};            // deadline to join, or to close when closing
    size_t num_bytes_before = 0;  // that had arrived when it was refused
  };

  void accept_some(TimePoint now);
  void drop_oldest_stranger();
  void read(uint64_t token, TimePoint now);
  // Returns false if the session is over.
  bool handle(uint64_t token, Session& session, const Message& message, TimePoint now);
  bool handle_proof(Session& session, const Message& message, TimePoint now);
  bool handle_join(uint64_t token, Session& session, const Message& message, TimePoint now);
  bool handle_member(uint64_t token, Session& session, const Message& message, TimePoint now);
  void refuse(Session& session, const Error& why, bool may_retry, TimePoint now);
  void warn_of_stranger(const Session& session, const std::string& why, TimePoint now);
  void drop(uint64_t token, TimePoint now);
  void send_changes();
  void send_replies();
  void heartbeat(TimePoint now);

  const ClusterOptions options_;
  const int own_;  // this rank
  Poller& poller_;
  Shared& shared_;
  Fd listener_;
  TimePoint accept_again_ = TimePoint::max();  // set after the process ran out of descriptors
  Membership membership_;
  uint64_t sent_version_ = 0;
  // Epochs up to this one may be announced; announced_ is the last one that was.
  uint32_t granted_ = UINT32_MAX, announced_ = 0;
  bool over_ = false;  // the view that was sent last says so
  Store store_;
  StoreCalls calls_;                       // store calls of this rank
  std::map<uint64_t, Session> sessions_;   // sorted by token, so oldest first
  std::vector<uint64_t> session_of_rank_;  // token of the rank's session; 0 if none
  uint64_t next_token_ = kFirstSessionToken;
  TimePoint next_heartbeat_{};
  LogLimit stranger_warnings_{std::chrono::seconds(5)};
};

}  // namespace hocket
