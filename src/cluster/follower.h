// The side of every rank but 0: finds rank 0, proves itself, joins, beats, and notices when rank 0
// is gone. While rank 0 is silent for longer than suspect_after it dials anew beside the old
// connection, for after an outage a new one is through at once, whereas the old waits for its
// kernel's next retransmission. Whichever connection rank 0 is heard on last is used.
// Rank 0 is lost when its connection ended and no new one came within LivenessLimits::reconnect, or
// when it is silent for lost_after. Then this rank's epoch is over, and it dials until rank_wait.
// A peer that answers at rank 0's address without proof of the token cannot end a rank that was in:
// such a rank dials on. A rank that starts fails at once, since its own token may be the wrong one.
// Resolving the name of rank 0 may block this thread: that happens only while it is not connected.
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
    Fd dialled;  // until it is connected
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
  // Drops it for an error from before it proved to be rank 0; gives up only if never in.
  void doubt_candidate(const Error& why, TimePoint now);
  void read_current(TimePoint now);
  // False: the connection is of no use any more.
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
  bool lost_ = true;     // rank 0 is, or was never found; lost_since_ is since when
  bool was_in_ = false;  // it has met a rank 0 that proved itself
  bool gave_up_ = false;
  TimePoint lost_since_, heard_{};
  TimePoint cut_at_ = TimePoint::max();
  TimePoint next_beat_{}, next_dial_{}, next_announcement_{};
  std::string last_problem_ = "nothing answered yet";
};

}  // namespace hocket
