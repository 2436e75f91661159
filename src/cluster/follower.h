// The role of every rank that does not coordinate: finds the coordinator (rank 0, or the rank that
// follow() names), proves that it knows the token, joins, sends heartbeats, and notices when the
// coordinator is gone. While that is silent for longer than suspect_after, this rank dials a second
// connection: after an outage a new connection works at once, but the old one has to wait for the
// kernel's next retransmission. The rank uses the connection that joined last. The coordinator is
// lost if its connection ended and no new one joined within LivenessLimits::reconnect, or if it is
// silent for lost_after. Then this rank's epoch is over, and it dials until rank_wait. A peer at
// the coordinator's address without proof of the token cannot end a rank that was a member: such a
// rank keeps dialling. A rank that starts fails at once, since its own token may be the wrong one.
// Resolving the coordinator's name may block this thread, so it happens only while not connected.
// Thread: the control plane's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cluster/control_role.h"
#include "cluster/coordinator_address.h"
#include "cluster/join_attempt.h"

namespace hocket {

class Follower final : public ControlRole {
 public:
  Follower(const ClusterOptions& options, Identity self, Poller& poller, Shared& shared);
  // Follows no coordinator yet; `known` is the view of a rank that was a member, else empty.
  struct Elected {
    ClusterView known;
  };
  Follower(const ClusterOptions& options, Identity self, Poller& poller, Shared& shared,
           Elected elected);

  void on_event(uint64_t token, uint32_t events, TimePoint now) override;
  void on_command(ControlCommand command, TimePoint now) override;
  void on_tick(TimePoint now) override;
  TimePoint next_deadline() const override;
  void leave(const Error& why) override;

  // Follows `rank`, which listens at `address` and is the coordinator from now on. If this rank is
  // connected to another one, it leaves that one's epoch.
  void follow(int rank, const HostPort& address, TimePoint now);
  // True while there is no coordinator that this rank can reach.
  bool is_lost() const { return lost_; }
  bool gave_up() const { return gave_up_; }
  // True if the last dial found that nothing listens at the coordinator's address.
  bool is_refused() const { return lost_ && refused_; }
  // The coordinator has begun another term, about which a refusal before says nothing.
  void forget_refusal() { refused_ = false; }
  const ClusterView& view() const { return view_; }
  // Stops for good: the process should end.
  void give_up(const Error& why);
  // Sets the reason why there is no coordinator, for people to read.
  void explain(std::string why) { last_problem_ = std::move(why); }

 private:
  void dial(TimePoint now);
  void finish_dial(TimePoint now);
  void read_attempt(TimePoint now);
  void end_attempt(const JoinAttempt::Failure& failure);
  void drop_attempt(const std::string& why);
  void promote(const ClusterView& view, TimePoint now);
  JoinMessage join_message();
  void send_report() {
    if (current_ && unsent_) current_->send(*std::exchange(unsent_, std::nullopt));
  }
  void read_current(TimePoint now);
  // Returns false if the connection must be closed.
  bool handle_current(const Message& message, TimePoint now);
  bool apply(const ClusterView& view);
  void end_current(TimePoint now);
  void lose_coordinator(const std::string& why, TimePoint now);
  void announce(TimePoint now);
  bool may_dial(TimePoint now) const;
  TimePoint dial_at() const;

  const ClusterOptions options_;
  const Identity self_;
  Poller& poller_;
  Shared& shared_;
  StoreCalls calls_;
  ClusterView view_;
  CoordinatorAddress coordinator_;
  std::unique_ptr<Connection> current_;
  uint64_t current_token_ = 0;
  std::optional<JoinAttempt> attempt_;
  uint64_t next_token_ = kFirstSessionToken;
  bool lost_ = true;     // true while it is lost or not found yet, since lost_since_
  bool was_in_ = false;  // true after it joined one that proved itself
  bool gave_up_ = false;
  bool refused_ = false;
  TimePoint lost_since_, last_heard_{};
  TimePoint cut_at_ = TimePoint::max();
  TimePoint next_heartbeat_{}, next_dial_{}, next_announcement_{};
  std::optional<ReportMessage> unsent_;  // kept while the connection is renewed
  std::string last_problem_ = "nothing answered yet";
};

}  // namespace hocket
