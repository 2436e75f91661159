// Rank 0's role: listens, accepts ranks, receives their beats, sends the view to all, keeps the
// store. A connection that has not joined is closed after ClusterOptions::handshake. It is also
// closed if it sends more than 4 KiB before its proof, or if there are more than most_strangers of
// them (the oldest first: a rank needs one round trip, a flood must be faster to keep it out).
// Thread: the control plane's.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "cluster/control_role.h"
#include "cluster/store.h"

namespace hocket {

class Coordinator final : public ControlRole {
 public:
  // Starts to listen. Errors: port_in_use, io; unauthorized without a token at an address that is
  // not loopback.
  static Result<std::unique_ptr<Coordinator>> create(const ClusterOptions& options,
                                                     const Identity& self, Poller& poller,
                                                     Shared& shared);
  void on_event(uint64_t token, uint32_t events, TimePoint now) override;
  void on_command(ControlCommand command, TimePoint now) override;
  void on_tick(TimePoint now) override;
  TimePoint next_deadline() const override;
  void leave(TimePoint now) override;

  uint16_t port() const { return local_address(listener_).port(); }

 private:
  enum class Phase : uint8_t { proof, join, member, closing };
  struct Session {
    std::unique_ptr<Connection> connection;
    std::string peer;  // address of the other side
    Phase phase = Phase::proof;
    Nonce nonce{};
    int rank = -1;
    TimePoint until{};  // deadline to join, or to close when closing
  };

  Coordinator(const ClusterOptions& options, const Identity& self, Poller& poller, Shared& shared);
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
  void beat(TimePoint now);

  const ClusterOptions options_;
  Poller& poller_;
  Shared& shared_;
  Fd listener_;
  TimePoint accept_again_ = TimePoint::max();  // set after the process ran out of descriptors
  Membership membership_;
  uint64_t sent_version_ = 0;
  Store store_;
  StoreCalls calls_;                       // store calls of this rank
  std::map<uint64_t, Session> sessions_;   // sorted by token, so oldest first
  std::vector<uint64_t> session_of_rank_;  // token of the rank's session; 0 if none
  uint64_t next_token_ = kFirstSessionToken;
  TimePoint next_beat_{};
  TimePoint quiet_until_{};  // no warnings of strangers until then
  int64_t num_unlogged_ = 0;
};

}  // namespace hocket
