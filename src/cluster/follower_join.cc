// How a follower joins: dials the coordinator, proves itself, and asks to be taken in.
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "cluster/follower.h"
#include "cluster/token_proof.h"

namespace hocket {

Result<void> Follower::find_address() {
  if (next_address_ < addresses_.size()) return {};
  // All were tried. A rank 0 that was started anew may have another address by the same name.
  if (addresses_.empty() || lost_) {
    HOCKET_TRY(addresses_, resolve(*target_));
  }
  next_address_ = 0;
  return {};
}

void Follower::dial(TimePoint now) {
  next_dial_ =
      now + (lost_ ? options_.redial : std::min(options_.redial, options_.limits.reconnect / 4));
  if (auto found = find_address(); !found) {
    last_problem_ = found.error().message;
    return;
  }
  const SocketAddress& address = addresses_[next_address_++];
  if (options_.token.empty() && !options_.insecure && !address.is_loopback())
    return give_up(error(ErrorCode::unauthorized,
                         "ranks across hosts need a cluster token, and {} is no loopback address",
                         address.text())
                       .with_fix("--cluster-token-file FILE on all ranks, or --insecure-cluster "
                                 "where strangers cannot reach the port"));
  auto fd = start_dial(address);
  refused_ = !fd && fd.error().code == ErrorCode::lost_rank;
  if (!fd) {
    last_problem_ = fd.error().message;
    return;
  }
  tune_socket(*fd, options_.limits.lost_after);
  candidate_ = std::make_unique<Candidate>();
  candidate_->dialled = *std::move(fd);
  candidate_->token = next_token_++;
  candidate_->until = now + options_.redial;
  poller_.add(candidate_->dialled, candidate_->token, EPOLLOUT);
}

void Follower::connected(TimePoint now) {
  const int problem = connect_error(candidate_->dialled);
  refused_ = problem == ECONNREFUSED;
  if (problem != 0)
    return drop_candidate(now, fmt::format("{}: {}", to_text(*target_), std::strerror(problem)));
  poller_.remove(candidate_->dialled);
  shared_.publish_local_host(local_address(candidate_->dialled).host());
  candidate_->connection = std::make_unique<Connection>(std::exchange(candidate_->dialled, Fd()),
                                                        poller_, candidate_->token);
  candidate_->phase = Phase::hello;
  candidate_->until = now + options_.handshake;
}

void Follower::drop_candidate(TimePoint, const std::string& why) {
  last_problem_ = why;
  if (candidate_->dialled) poller_.remove(candidate_->dialled);
  candidate_.reset();
}

void Follower::reject_candidate(const Error& why, TimePoint now) {
  if (!was_in_) give_up(why);
  drop_candidate(now, why.message);
}

void Follower::read_candidate(TimePoint now) {
  const uint64_t token = candidate_->token;
  candidate_->connection->receive();
  while (candidate_) {
    const bool proven = candidate_->phase == Phase::view;
    const auto message =
        candidate_->connection->next(proven ? kMaxFrameBytes : kMaxStrangerFrameBytes);
    if (!message) {
      // The peer runs another version of hocket: both sides log it.
      if (message.error().code == ErrorCode::lost_rank) {
        candidate_->connection->send(LeaveMessage{cut_why(message.error().message)});
        return reject_candidate(message.error(), now);
      }
      return drop_candidate(now, message.error().message);
    }
    if (!message->has_value()) break;
    handle_candidate(**message, now);
  }
  // The bytes behind the view belong to the joined connection.
  if (!candidate_) {
    if (current_ && current_token_ == token) read_current(now);
    return;
  }
  if (!candidate_->connection->ended()) return;
  const Error why = *candidate_->connection->ended();
  if (why.code == ErrorCode::unauthorized)
    return reject_candidate(
        error(why.code, "what answers at {} does not know the cluster token: {}", to_text(*target_),
              why.message)
            .with_fix("give all ranks the same --cluster-token-file"),
        now);
  drop_candidate(now, target_name() + " ended the connection before this rank had joined");
}

void Follower::handle_candidate(const Message& message, TimePoint now) {
  // With TLS the hello alone is in the clear, so a refusal in its place may be anybody's.
  const bool may_be_refused = !options_.tls || candidate_->phase != Phase::hello;
  const auto* refused = std::get_if<RefusedMessage>(&message);
  if (refused != nullptr && may_be_refused) return on_refused(*refused, now);
  const auto* hello = std::get_if<HelloMessage>(&message);
  const auto* welcome = std::get_if<WelcomeMessage>(&message);
  const auto* view = std::get_if<ViewMessage>(&message);
  if (candidate_->phase == Phase::hello && hello != nullptr) return answer_hello(*hello, now);
  if (candidate_->phase == Phase::welcome && welcome != nullptr)
    return check_welcome(*welcome, now);
  if (candidate_->phase == Phase::view && view != nullptr) return promote(view->view, now);
  drop_candidate(now, fmt::format("what answers is not {} of a hocket cluster", target_name()));
}

void Follower::answer_hello(const HelloMessage& hello, TimePoint now) {
  if (hello.needs_token != !options_.token.empty())
    return reject_candidate(
        error(ErrorCode::unauthorized, "{} runs {} a cluster token, this rank {}", target(),
              hello.needs_token ? "with" : "without", hello.needs_token ? "without" : "with")
            .with_fix("give all ranks the same --cluster-token-file"),
        now);
  if (hello.tls != (options_.tls != nullptr))
    return reject_candidate(
        error(ErrorCode::unauthorized, "{} talks to ranks {} TLS, this rank {}", target(),
              hello.tls ? "with" : "without", hello.tls ? "without" : "with")
            .with_fix("give all ranks the same --cluster-tls"),
        now);
  if (options_.tls) candidate_->connection->begin_tls(options_.tls, TlsEnd::client);
  candidate_->their_nonce = hello.nonce;
  candidate_->nonce = make_nonce();
  candidate_->connection->send(ProofMessage{
      candidate_->nonce, prove(options_.token, Side::other, hello.nonce, candidate_->nonce)});
  candidate_->phase = Phase::welcome;
}

void Follower::check_welcome(const WelcomeMessage& welcome, TimePoint now) {
  const Proof expected =
      prove(options_.token, Side::rank_0, candidate_->nonce, candidate_->their_nonce);
  if (!same_proof(welcome.proof, expected))
    return reject_candidate(
        error(ErrorCode::unauthorized, "what answers at {} does not know the cluster token",
              to_text(*target_))
            .with_fix("give all ranks the same --cluster-token-file"),
        now);
  candidate_->connection->send(JoinMessage{.identity = self_,
                                           .last_epoch = view_.epoch,
                                           .resumes = !lost_,
                                           .began = view_.began,
                                           .heartbeat = shared_.heartbeat_state.heartbeat(),
                                           .replicas = view_.replicas});
  candidate_->phase = Phase::view;
}

Error Follower::reason_of(const RefusedMessage& refused) const {
  return {static_cast<ErrorCode>(refused.code),
          target_name() + " refuses this rank: " + refused.text,
          refused.fix,
          {}};
}

void Follower::on_refused(const RefusedMessage& refused, TimePoint now) {
  const Error why = reason_of(refused);
  if (!refused.may_retry && candidate_->phase != Phase::view) return reject_candidate(why, now);
  if (!refused.may_retry) give_up(why);
  drop_candidate(now, why.message);
}

}  // namespace hocket
