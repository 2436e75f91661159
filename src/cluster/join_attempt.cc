#include "cluster/join_attempt.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace hocket {
namespace {

using JoinFailure = JoinAttempt::Failure;

std::unexpected<JoinFailure> end_join(Error why, JoinFailure::Retry retry) {
  return std::unexpected(JoinFailure{std::move(why), retry});
}

std::unexpected<JoinFailure> end_join(std::string why) {
  return end_join(error(ErrorCode::lost_rank, "{}", why), JoinFailure::Retry::every_rank);
}

// Returns the failure of ranks that were not started with the same flag.
std::unexpected<JoinFailure> misfit(Error why, std::string_view flag) {
  return end_join(std::move(why).with_fix(fmt::format("give all ranks the same {}", flag)),
                  JoinFailure::Retry::members);
}

}  // namespace

Error reason_of(const RefusedMessage& refused, const CoordinatorAddress& coordinator) {
  return {static_cast<ErrorCode>(refused.code),
          coordinator.name() + " refuses this rank: " + refused.text,
          refused.fix,
          {}};
}

JoinAttempt::JoinAttempt(Options options, Fd dialled, uint64_t token, TimePoint now)
    : options_(std::move(options)),
      token_(token),
      dialled_(std::move(dialled)),
      until_(now + options_.cluster.redial) {
  options_.poller.add(dialled_, token_, EPOLLOUT);
}

JoinAttempt::~JoinAttempt() {
  if (dialled_) options_.poller.remove(dialled_);
}

Result<std::string> JoinAttempt::finish_dial(TimePoint now) {
  const int problem = connect_error(dialled_);
  if (problem != 0)
    return fail(problem == ECONNREFUSED ? ErrorCode::lost_rank : ErrorCode::io, "{}: {}",
                options_.coordinator.address_text(), std::strerror(problem));
  options_.poller.remove(dialled_);
  std::string host = local_address(dialled_).host();
  connection_ =
      std::make_unique<Connection>(std::exchange(dialled_, Fd()), options_.poller, token_);
  phase_ = Phase::hello;
  until_ = now + options_.cluster.handshake;
  return host;
}

JoinAttempt::Handled JoinAttempt::read() {
  connection_->receive();
  for (;;) {
    const bool proven = phase_ == Phase::view;
    const auto message = connection_->next(proven ? kMaxFrameBytes : kMaxStrangerFrameBytes);
    if (!message) {
      // The peer runs another version of hocket: both sides log it.
      if (message.error().code == ErrorCode::lost_rank) {
        connection_->send(LeaveMessage{cut_why(message.error().message)});
        return end_join(message.error(), JoinFailure::Retry::members);
      }
      return end_join(message.error(), JoinFailure::Retry::every_rank);
    }
    if (!message->has_value()) break;
    auto handled = handle(**message);
    if (!handled || handled->has_value()) return handled;
  }
  if (!connection_->ended()) return std::nullopt;
  const Error& why = *connection_->ended();
  if (why.code == ErrorCode::unauthorized)
    return misfit(error(why.code, "what answers at {} does not know the cluster token: {}",
                        options_.coordinator.address_text(), why.message),
                  "--cluster-token-file");
  return end_join(options_.coordinator.name() +
                  " ended the connection before this rank had joined");
}

JoinAttempt::Handled JoinAttempt::handle(const Message& message) {
  // With TLS only the hello is not encrypted, so a refusal in its place may be forged.
  const bool may_be_refused = !options_.cluster.tls || phase_ != Phase::hello;
  const auto* refused = std::get_if<RefusedMessage>(&message);
  if (refused != nullptr && may_be_refused) return refuse(*refused);
  const auto* hello = std::get_if<HelloMessage>(&message);
  const auto* welcome = std::get_if<WelcomeMessage>(&message);
  const auto* view = std::get_if<ViewMessage>(&message);
  if (phase_ == Phase::hello && hello != nullptr) return answer_hello(*hello);
  if (phase_ == Phase::welcome && welcome != nullptr) return check_welcome(*welcome);
  if (phase_ == Phase::view && view != nullptr) return view->view;
  return end_join(
      fmt::format("what answers is not {} of a hocket cluster", options_.coordinator.name()));
}

JoinAttempt::Handled JoinAttempt::answer_hello(const HelloMessage& hello) {
  const ClusterOptions& cluster = options_.cluster;
  const auto with = [](bool has) { return has ? "with" : "without"; };
  if (hello.needs_token != !cluster.token.empty())
    return misfit(
        error(ErrorCode::unauthorized, "{} runs {} a cluster token, this rank {}",
              options_.coordinator.text(), with(hello.needs_token), with(!hello.needs_token)),
        "--cluster-token-file");
  if (hello.tls != (cluster.tls != nullptr))
    return misfit(error(ErrorCode::unauthorized, "{} talks to ranks {} TLS, this rank {}",
                        options_.coordinator.text(), with(hello.tls), with(!hello.tls)),
                  "--cluster-tls");
  if (cluster.tls) connection_->begin_tls(cluster.tls, TlsEnd::client);
  their_nonce_ = hello.nonce;
  nonce_ = make_nonce();
  connection_->send(ProofMessage{nonce_, prove(cluster.token, Side::other, hello.nonce, nonce_)});
  phase_ = Phase::welcome;
  return std::nullopt;
}

JoinAttempt::Handled JoinAttempt::check_welcome(const WelcomeMessage& welcome) {
  const Proof expected = prove(options_.cluster.token, Side::rank_0, nonce_, their_nonce_);
  if (!same_proof(welcome.proof, expected))
    return misfit(
        error(ErrorCode::unauthorized, "what answers at {} does not know the cluster token",
              options_.coordinator.address_text()),
        "--cluster-token-file");
  connection_->send(options_.join());
  phase_ = Phase::view;
  return std::nullopt;
}

JoinAttempt::Handled JoinAttempt::refuse(const RefusedMessage& refused) const {
  using enum JoinFailure::Retry;
  const bool proven = phase_ == Phase::view;
  return end_join(reason_of(refused, options_.coordinator), refused.may_retry ? every_rank
                                                            : proven          ? none
                                                                              : members);
}

}  // namespace hocket
