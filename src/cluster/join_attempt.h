// An attempt of a follower to join, over a connection of its own: it dials the coordinator, proves
// that this rank knows the token, checks the coordinator's proof, and asks to be taken in. Its
// phases, by what it waits for:
//
//   dialling (the socket connects) -> hello -> welcome -> view
//
// Owner: Follower, which decides what a failure means for the rank. Thread: the control plane's.
#pragma once

#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cluster/connection.h"
#include "cluster/control_role.h"
#include "cluster/coordinator_address.h"
#include "cluster/token_proof.h"

namespace hocket {

class JoinAttempt {
 public:
  struct Options {
    const ClusterOptions& cluster;
    const CoordinatorAddress& coordinator;  // stays the same while the attempt lives
    Poller& poller;
    std::function<JoinMessage()> join;  // makes the message by which this rank asks to be taken in
  };
  // Why an attempt failed, and who may make another: every rank; a rank that was a member, because
  // the reason came from a peer without proof of the token; or none.
  struct Failure {
    enum class Retry : uint8_t { every_rank, members, none };
    Error why;
    Retry retry = Retry::every_rank;
  };

  // `dialled` connects to the coordinator; the poller's events of the attempt carry `token`.
  JoinAttempt(Options options, Fd dialled, uint64_t token, TimePoint now);
  JoinAttempt(const JoinAttempt&) = delete;
  JoinAttempt& operator=(const JoinAttempt&) = delete;
  ~JoinAttempt();

  uint64_t token() const { return token_; }
  bool is_dialling() const { return phase_ == Phase::dialling; }
  // The time until which it may wait for what it waits for.
  TimePoint until() const { return until_; }

  // Handles the end of dialling. Returns the address of this host by which it reaches the
  // coordinator. Errors: lost_rank if nothing listens there; io.
  Result<std::string> finish_dial(TimePoint now);
  // Sends what waits.
  void flush() { connection_->flush(); }
  // Reads and answers what has arrived. Returns the view of the coordinator that has taken this
  // rank in; nullopt while that is awaited. Errors: then the attempt is over.
  std::expected<std::optional<ClusterView>, Failure> read();
  // Gives the connection, whose next message is the one behind the view.
  std::unique_ptr<Connection> take_connection() { return std::move(connection_); }

 private:
  enum class Phase : uint8_t { dialling, hello, welcome, view };
  using Handled = std::expected<std::optional<ClusterView>, Failure>;

  Handled handle(const Message& message);
  Handled answer_hello(const HelloMessage& hello);
  Handled check_welcome(const WelcomeMessage& welcome);
  Handled refuse(const RefusedMessage& refused) const;

  const Options options_;
  const uint64_t token_;
  Fd dialled_;  // the socket until it is connected
  std::unique_ptr<Connection> connection_;
  Phase phase_ = Phase::dialling;
  Nonce nonce_{}, their_nonce_{};
  TimePoint until_{};
};

// Returns why the coordinator refuses this rank, with its name and its fix.
Error reason_of(const RefusedMessage& refused, const CoordinatorAddress& coordinator);

}  // namespace hocket
