// The role of every rank except 0: finds rank 0, proves that it knows the token, joins, sends
// beats, and notices when rank 0 is gone. While rank 0 is silent for longer than suspect_after,
// this rank dials a second connection: after an outage a new one works at once, whereas the old one
// waits for its kernel's next retransmission. The rank uses the connection that joined last.
// Rank 0 is lost if its connection ended and no new one joined within LivenessLimits::reconnect, or
// if it is silent for lost_after. Then this rank's epoch is over, and it dials until rank_wait.
// A peer at rank 0's address without proof of the token cannot end a rank that was a member: such a
// rank dials on. A rank that starts fails at once, since its own token may be the wrong one.
// Resolving the name of rank 0 may block this thread, so it happens only while not connected.
// Thread: the control plane's.
#pragma once

#include <memory>
#include <vector>

#include "cluster/control_role.h"

namespace hocket {

class Follower final : public ControlRole {
 public:
  Follower(const ClusterOptions& options, Identity self, Poller& poller, Shared& shared);
  ~Follower() override;

  void on_event(uint64_t token, uint32_t events, TimePoint now) override;
  void on_command(ControlCommand command, TimePoint now) override;
  void on_tick(TimePoint now) override;
  TimePoint next_deadline() const override;
  void leave(TimePoint now) override;

 private:
  enum class Phase : uint8_t { dialling, hello, welcome, view };
  struct Candidate {
    Fd dialled;  // the socket until it is connected
    std::unique_ptr<Connection> connection;
    uint64_t token = 0;
    Phase phase = Phase::dialling;
    Nonce nonce{}, rank_0_nonce{};
    TimePoint until{};
  };

  void dial(TimePoint now);
  Result<void> find_address();
  void connected(TimePoint now);
  void read_candidate(TimePoint now);
  void handle_candidate(const Message& message, TimePoint now);
  void answer_hello(const HelloMessage& hello, TimePoint now);
  void check_welcome(const WelcomeMessage& welcome, TimePoint now);
  void on_refused(const RefusedMessage& refused, TimePoint now);
  void promote(const ClusterView& view, TimePoint now);
  void drop_candidate(TimePoint now, const std::string& why);
  // Drops the candidate for an error before its proof; gives up if this rank was never a member.
  void reject_candidate(const Error& why, TimePoint now);
  void read_current(TimePoint now);
  // Returns false if the connection must be closed.
  bool handle_current(const Message& message, TimePoint now);
  bool apply(const ClusterView& view);
  void end_current(TimePoint now);
  void lose_rank_0(const std::string& why, TimePoint now);
  void give_up(const Error& why);
  void announce(TimePoint now);
  bool may_dial(TimePoint now) const;
  TimePoint dial_at() const;

  const ClusterOptions options_;
  const Identity self_;
  Poller& poller_;
  Shared& shared_;
  StoreCalls calls_;
  ClusterView view_;
  std::vector<SocketAddress> addresses_;
  size_t next_address_ = 0;
  std::unique_ptr<Connection> current_;
  uint64_t current_token_ = 0;
  std::unique_ptr<Candidate> candidate_;
  uint64_t next_token_ = kFirstSessionToken;
  bool lost_ = true;     // true while rank 0 is lost or not found yet, since lost_since_
  bool was_in_ = false;  // true after it joined a rank 0 that proved itself
  bool gave_up_ = false;
  TimePoint lost_since_, last_heard_{};
  TimePoint cut_at_ = TimePoint::max();
  TimePoint next_beat_{}, next_dial_{}, next_announcement_{};
  std::string last_problem_ = "nothing answered yet";
};

}  // namespace hocket
