// Rank 0's side: listens, lets ranks in, hears them, tells all who is there, keeps the store.
// A stranger, that is a connection which has not proven that it knows the token, is closed after
// ClusterOptions::handshake, 4 KiB, or when there are more than most_strangers (the oldest first:
// a rank needs a round trip, a flood must be faster than that to keep it out).
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
  // Listens. Errors: port_in_use, io; unauthorized without a token at an address that is not
  // loopback.
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
    std::string peer;  // its address
    Phase phase = Phase::proof;
    Nonce nonce{};
    int rank = -1;
    TimePoint until{};  // a stranger's time, or that of a closing one
  };

  Coordinator(const ClusterOptions& options, const Identity& self, Poller& poller, Shared& shared);
  void accept_some(TimePoint now);
  void drop_oldest_stranger();
  void read(uint64_t token, TimePoint now);
  // False: the session is over.
  bool handle(uint64_t token, Session& session, const Message& message, TimePoint now);
  bool handle_proof(Session& session, const Message& message, TimePoint now);
  bool handle_join(uint64_t token, Session& session, const Message& message, TimePoint now);
  bool handle_member(uint64_t token, Session& session, const Message& message, TimePoint now);
  void refuse(Session& session, const Error& why, bool may_retry, TimePoint now);
  void warn_of_stranger(const Session& session, const std::string& why, TimePoint now);
  void drop(uint64_t token, TimePoint now);
  void tell_all();
  void beat(TimePoint now);

  const ClusterOptions options_;
  Poller& poller_;
  Shared& shared_;
  Fd listener_;
  TimePoint accept_again_ = TimePoint::max();  // after the process ran out of descriptors
  Membership membership_;
  uint64_t told_version_ = 0;
  Store store_;
  StoreCalls calls_;                       // of this rank
  std::map<uint64_t, Session> sessions_;   // by token, so oldest first
  std::vector<uint64_t> session_of_rank_;  // its token; 0: none
  uint64_t next_token_ = kFirstSessionToken;
  TimePoint next_beat_{};
  TimePoint quiet_until_{};  // of warnings of strangers
  int64_t num_unsaid_ = 0;
};

}  // namespace hocket
