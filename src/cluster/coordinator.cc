#include "cluster/coordinator.h"

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "cluster/token_proof.h"

namespace hocket {
namespace {

constexpr size_t kMaxStrangerBytes = 4096;
constexpr Duration kClosingTime = std::chrono::milliseconds(500);
constexpr Duration kAcceptPause = std::chrono::milliseconds(100);
constexpr int kMaxAccepts = 16;  // per event, so that other sockets get their turn

// Resolves an address of this rank, and retries: a pod starts a moment before its name is known.
Result<std::vector<SocketAddress>> resolve_patiently(const HostPort& address, Duration patience,
                                                     Duration pause) {
  const TimePoint until = RealClock().now() + patience;
  bool said = false;
  for (;;) {
    auto found = resolve(address);
    if (found || RealClock().now() >= until) return found;
    if (!std::exchange(said, true))
      log::warning("cluster: {}; trying again for {:.0f} s", found.error().message,
                   to_seconds(patience));
    std::this_thread::sleep_for(pause);
  }
}

// Names the flag that says where this rank listens.
std::unexpected<Error> no_listener(const ClusterOptions& options, const Error& why) {
  const std::string who = options.store ? "this rank" : "rank 0";
  const char* flag = options.store ? "cluster-listen" : "dist-init-addr";
  Error told = why;
  told.message = fmt::format("{} cannot coordinate: {}", who, why.message);
  return fail(
      std::move(told)
          .with_fix(fmt::format("--{} names an address of {}'s host and a free port", flag, who))
          .with_param(flag));
}

}  // namespace

Result<Fd> Coordinator::listen(const ClusterOptions& options, const HostPort& at,
                               Duration patience) {
  const auto addresses = resolve_patiently(at, patience, options.redial);
  if (!addresses) return no_listener(options, addresses.error());
  SocketAddress address = addresses->front();
  if (options.token.empty() && !options.insecure && !address.is_loopback())
    return fail(error(ErrorCode::unauthorized,
                      "ranks across hosts need a cluster token, and {} is no loopback address",
                      address.text())
                    .with_fix("--cluster-token-file FILE on all ranks, or --insecure-cluster "
                              "where strangers cannot reach the port"));
  auto listener = listen_on(address);
  if (!listener && listener.error().code != ErrorCode::port_in_use && !address.is_loopback()) {
    // The name may belong to a service or a gateway in front of this machine.
    log::warning("cluster: {}; listening at every address instead", listener.error().message);
    address.set_any();
    listener = listen_on(address);
  }
  if (!listener) return no_listener(options, listener.error());
  return listener;
}

Coordinator::Coordinator(const ClusterOptions& options, const Identity& self, Poller& poller,
                         Shared& shared, Start start)
    : options_(options),
      own_(self.rank),
      poller_(poller),
      shared_(shared),
      listener_(std::move(start.listener)),
      membership_(self, options.limits, RealClock().now(),
                  {.last_epoch = start.last_epoch.value_or(0),
                   .tolerate_ranks = options.tolerate_ranks,
                   .began = start.began,
                   .replicas = start.replicas,
                   .begin_after = options.rank_wait}),
      session_of_rank_(static_cast<size_t>(self.num_ranks), 0) {
  if (start.last_epoch) granted_ = announced_ = *start.last_epoch;
  const SocketAddress address = local_address(listener_);
  shared_.publish_local_host(address.is_any() ? own_host() : address.host());
  poller_.add(listener_, kListenToken, EPOLLIN);
  send_changes();
}

ClusterView Coordinator::announced() const {
  ClusterView view = membership_.view();
  if (view.epoch <= granted_) return view;
  view.epoch = announced_;
  view.over = true;
  return view;
}

void Coordinator::accept_some(TimePoint now) {
  for (int i = 0; i < kMaxAccepts; ++i) {
    SocketAddress from;
    from.length = sizeof from.storage;
    Fd fd(accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.length,
                  SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      // The process lacks descriptors or memory: the listener stays ready and would keep this
      // thread awake.
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        poller_.change(listener_, kListenToken, 0);
        accept_again_ = now + kAcceptPause;
      }
      return;
    }
    tune_socket(fd, options_.limits.lost_after);
    drop_oldest_stranger();
    const uint64_t token = next_token_++;
    Session& session = sessions_[token];
    session.connection = std::make_unique<Connection>(std::move(fd), poller_, token);
    session.peer = from.text();
    session.nonce = make_nonce();
    session.until = now + options_.handshake;
    session.connection->send(HelloMessage{.needs_token = !options_.token.empty(),
                                          .tls = options_.tls != nullptr,
                                          .nonce = session.nonce});
    if (options_.tls) session.connection->begin_tls(options_.tls, TlsEnd::server);
  }
}

void Coordinator::drop_oldest_stranger() {
  const auto is_stranger = [](const auto& entry) { return entry.second.phase != Phase::member; };
  if (std::ranges::count_if(sessions_, is_stranger) < options_.max_strangers) return;
  sessions_.erase(std::ranges::find_if(sessions_, is_stranger));
}

void Coordinator::on_event(uint64_t token, uint32_t events, TimePoint now) {
  if (token == kListenToken) return accept_some(now);
  const auto found = sessions_.find(token);
  if (found == sessions_.end()) return;  // dropped earlier in the same round
  if ((events & EPOLLOUT) != 0) found->second.connection->flush();
  if ((events & ~uint32_t{EPOLLOUT}) != 0) read(token, now);
}

void Coordinator::read(uint64_t token, TimePoint now) {
  Session& session = sessions_.at(token);
  session.connection->receive();
  // A peer may say its last words and leave; one that takes no answers has no more words here.
  const bool has_left = session.connection->ended().has_value();
  while (session.phase != Phase::closing && (has_left || !session.connection->ended())) {
    const size_t max_bytes =
        session.phase == Phase::proof ? kMaxStrangerFrameBytes : kMaxFrameBytes;
    const auto message = session.connection->next(max_bytes);
    if (!message) {
      warn_of_stranger(session, message.error().message, now);
      return drop(token, now);
    }
    if (!message->has_value()) break;
    if (!handle(token, session, **message, now)) return drop(token, now);
  }
  // One that had proved itself has said more before, and has yet to read why it is refused.
  const bool talks_too_much =
      session.phase != Phase::member && session.phase != Phase::join &&
      session.connection->received_bytes() - session.num_bytes_before > kMaxStrangerBytes;
  const std::optional<Error>& ended = session.connection->ended();
  if (ended && ended->code == ErrorCode::unauthorized)
    warn_of_stranger(session, ended->message, now);
  if (ended || talks_too_much) drop(token, now);
}

bool Coordinator::handle(uint64_t token, Session& session, const Message& message, TimePoint now) {
  switch (session.phase) {
    case Phase::proof:
      return handle_proof(session, message, now);
    case Phase::join:
      return handle_join(token, session, message, now);
    case Phase::member:
      return handle_member(token, session, message, now);
    case Phase::closing:
      return true;
  }
  return false;
}

bool Coordinator::handle_proof(Session& session, const Message& message, TimePoint now) {
  const auto* said = std::get_if<ProofMessage>(&message);
  if (said == nullptr) {
    warn_of_stranger(session, "it did not prove that it knows the token", now);
    return false;
  }
  const Proof expected = prove(options_.token, Side::other, session.nonce, said->nonce);
  if (!same_proof(said->proof, expected)) {
    warn_of_stranger(session, "its cluster token is another", now);
    refuse(session,
           error(ErrorCode::unauthorized, "the cluster token is not that of rank {}", own_)
               .with_fix("give all ranks the same --cluster-token-file"),
           false, now);
    return true;
  }
  session.phase = Phase::join;
  session.connection->send(
      WelcomeMessage{prove(options_.token, Side::rank_0, said->nonce, session.nonce)});
  return true;
}

bool Coordinator::handle_join(uint64_t token, Session& session, const Message& message,
                              TimePoint now) {
  const auto* sent = std::get_if<JoinMessage>(&message);
  if (sent == nullptr) return false;
  JoinMessage joining = *sent;
  // A rank knows its port for datagrams, and this one the address by which it is reached.
  if (std::string& address = joining.identity.address; !address.empty())
    address = fmt::format("{}:{}", session.peer.substr(0, session.peer.rfind(':')), address);
  const JoinMessage* const join = &joining;
  if (auto joined = membership_.join(*join, now); !joined) {
    const bool may_retry = joined.error().code == ErrorCode::queue_full;
    const bool has_name = check(join->identity).has_value();  // or its host may forge lines
    log::error("cluster: refused {} from {}: {}",
               has_name ? name_of(join->identity) : fmt::format("rank {}", join->identity.rank),
               session.peer, joined.error().message);
    refuse(session, joined.error(), may_retry, now);
    return true;
  }
  uint64_t& current = session_of_rank_[static_cast<size_t>(join->identity.rank)];
  if (current != 0) {
    store_.forget(current);
    sessions_.erase(current);
  }
  current = token;
  session.rank = join->identity.rank;
  session.phase = Phase::member;
  session.connection->send(ViewMessage{announced()});
  log::info("cluster: joined {} from {}", name_of(join->identity), session.peer);
  return true;
}

bool Coordinator::handle_member(uint64_t token, Session& session, const Message& message,
                                TimePoint now) {
  if (const auto* heartbeat = std::get_if<HeartbeatMessage>(&message)) {
    if (auto taken = membership_.heartbeat(session.rank, heartbeat->heartbeat, now); !taken) {
      log::error("cluster: refused {}", taken.error().message);
      membership_.leave(session.rank, taken.error().message);
      refuse(session, taken.error(), false, now);
    }
  } else if (const auto* request = std::get_if<StoreRequest>(&message)) {
    store_.ask(token, *request, now);
    send_replies();  // at once, so that what waits for a rank that does not read is counted
  } else if (const auto* report = std::get_if<ReportMessage>(&message)) {
    membership_.report({session.rank, report->rank, report->epoch, report->why}, now);
  } else if (const auto* leave = std::get_if<LeaveMessage>(&message)) {
    membership_.leave(session.rank, leave->why);
    return false;
  } else {
    log::error("cluster: rank {} sent a message that a member does not send", session.rank);
    return false;
  }
  return true;
}

void Coordinator::refuse(Session& session, const Error& why, bool may_retry, TimePoint now) {
  session.connection->send(RefusedMessage{.may_retry = may_retry,
                                          .code = static_cast<uint16_t>(why.code),
                                          .text = cut_why(why.message),
                                          .fix = cut_why(why.fix)});
  session.connection->finish();
  if (session.phase != Phase::proof)
    session.num_bytes_before = session.connection->received_bytes();
  session.phase = Phase::closing;
  session.until = now + kClosingTime;
}

void Coordinator::warn_of_stranger(const Session& session, const std::string& why, TimePoint now) {
  if (const auto num_more = stranger_warnings_.admit(now))
    log::warning("cluster: closed a connection from {}: {} ({} more since the last such line)",
                 session.peer, why, *num_more);
}

void Coordinator::drop(uint64_t token, TimePoint now) {
  const auto found = sessions_.find(token);
  const int rank = found->second.rank;
  if (rank >= 0 && session_of_rank_[static_cast<size_t>(rank)] == token) {
    session_of_rank_[static_cast<size_t>(rank)] = 0;
    membership_.cut(rank, now);
  }
  store_.forget(token);
  sessions_.erase(found);
}

void Coordinator::on_command(ControlCommand command, TimePoint now) {
  if (auto* call = std::get_if<StoreCall>(&command)) {
    if (auto request = calls_.start(std::move(*call))) store_.ask(0, *std::move(request), now);
  } else if (const auto* report = std::get_if<ReportMessage>(&command)) {
    membership_.report({own_, report->rank, report->epoch, report->why}, now);
  }
}

void Coordinator::on_tick(TimePoint now) {
  if (accept_again_ <= now) {
    accept_again_ = TimePoint::max();
    poller_.change(listener_, kListenToken, EPOLLIN);
  }
  if (next_heartbeat_ <= now) heartbeat(now);
  membership_.tick(now);
  store_.expire(now);
  send_changes();
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const auto [token, session] = std::pair(it->first, &it->second);
    ++it;
    const bool is_member = session->phase == Phase::member;
    const bool late = !is_member && session->until <= now;
    const bool silent = is_member && !membership_.connected(session->rank);
    if (late || silent || session->connection->ended()) drop(token, now);
  }
}

void Coordinator::heartbeat(TimePoint now) {
  next_heartbeat_ = now + options_.limits.heartbeat;
  const Heartbeat own = shared_.own_heartbeat.heartbeat();
  if (const auto taken = membership_.heartbeat(own_, own, now); !taken && !shared_.failure()) {
    log::error("cluster: {}", taken.error().message);
    shared_.give_up(taken.error());
  }
  for (auto& [token, session] : sessions_)
    if (session.phase == Phase::member) session.connection->send(HeartbeatMessage{own});
  shared_.publish_status(membership_.status(now));
}

void Coordinator::send_changes() {
  const ClusterView view = announced();
  if (sent_version_ != membership_.version() || over_ != view.over) {
    sent_version_ = membership_.version();
    over_ = view.over;
    announced_ = view.epoch;
    for (auto& [token, session] : sessions_)
      if (session.phase == Phase::member) session.connection->send(ViewMessage{view});
    shared_.publish(view);
  }
  send_replies();
}

void Coordinator::send_replies() {
  for (const Store::Reply& reply : store_.take_replies()) {
    if (reply.requester == 0) {
      calls_.finish(reply.message());
    } else if (const auto found = sessions_.find(reply.requester); found != sessions_.end()) {
      found->second.connection->send(reply.message());
    }
  }
}

TimePoint Coordinator::next_deadline() const {
  TimePoint next = std::min(
      {accept_again_, next_heartbeat_, membership_.next_deadline(), store_.next_deadline()});
  for (const auto& [token, session] : sessions_)
    if (session.phase != Phase::member) next = std::min(next, session.until);
  return next;
}

void Coordinator::leave(const Error& why) {
  for (auto& [token, session] : sessions_)
    if (session.phase == Phase::member)
      session.connection->send(LeaveMessage{cut_why(why.message)});
  calls_.fail_all(why);
}

}  // namespace hocket
