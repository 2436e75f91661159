#include "cluster/elected_role.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace hocket {
namespace {

constexpr Duration kListenRetry = std::chrono::seconds(1);

}  // namespace

ElectedRole::ElectedRole(const ClusterOptions& options, Identity self, Poller& poller,
                         Shared& shared)
    : options_(options),
      self_(std::move(self)),
      poller_(poller),
      shared_(shared),
      news_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      follower_(std::make_unique<Follower>(options_, self_, poller, shared, Follower::Elected{})) {
  HOCKET_CHECK(static_cast<bool>(news_));
  poller_.add(news_, kSeatToken, EPOLLIN);
  seat_ = std::make_unique<CoordinatorSeatThread>(
      EtcdClient::Options{.servers = options_.store->servers, .tls = options_.store_tls},
      CoordinatorSeat::Options{.name = options_.store->name, .self = self_}, [this] {
        const uint64_t one = 1;
        (void)!write(news_.get(), &one, sizeof one);
      });
}

ElectedRole::~ElectedRole() {
  seat_.reset();
  poller_.remove(news_);
}

ControlRole& ElectedRole::role() {
  return coordinator_ ? static_cast<ControlRole&>(*coordinator_) : *follower_;
}

const ControlRole& ElectedRole::role() const {
  return coordinator_ ? static_cast<const ControlRole&>(*coordinator_) : *follower_;
}

// The seat is looked at in on_tick() alone, so events that belong to one role never reach the next.
void ElectedRole::on_event(uint64_t token, uint32_t events, TimePoint now) {
  if (token != kSeatToken) return role().on_event(token, events, now);
  uint64_t count = 0;
  (void)!read(news_.get(), &count, sizeof count);
}

void ElectedRole::on_command(ControlCommand command, TimePoint now) {
  role().on_command(std::move(command), now);
}

TimePoint ElectedRole::next_deadline() const {
  const TimePoint next = role().next_deadline();
  return listen_at_ == TimePoint{} ? next : std::min(next, listen_at_);
}

void ElectedRole::leave(const Error& why) {
  role().leave(why);
  seat_.reset();
}

bool ElectedRole::is_other(const CoordinatorSeat::State& seat) const {
  return seat.holder && seat.holder->boot_id != self_.boot_id;
}

void ElectedRole::on_tick(TimePoint now) {
  const CoordinatorSeat::State seat = seat_->state();
  if (coordinator_)
    keep_role(seat, now);
  else if (seat.mine && listener_ && seat.holder->address.port == local_address(listener_).port())
    take_role(seat);
  if (follower_) follow_seat(seat, now);
  role().on_tick(now);
  if (coordinator_) {
    const ClusterView view = coordinator_->announced();
    if (view.over) seat_->want_epoch(term_, coordinator_->wanted_epoch(), view.present().text());
  } else {
    run_for_seat(seat, now);
  }
}

void ElectedRole::follow_seat(const CoordinatorSeat::State& seat, TimePoint now) {
  if (!seat.problem.empty())
    follower_->explain("etcd: " + seat.problem);
  else if (!seat.holder)
    follower_->explain("no rank coordinates yet");
  // A rank of another service has another name in etcd; a rank that is none of this one is a
  // mistake that the other side refuses.
  const bool fits = is_other(seat) && !seat.holder->boot_id.empty() &&
                    seat.holder->rank < self_.num_ranks && seat.holder->rank != self_.rank;
  if (!fits) return;
  // A port that refused in the last term may listen in this one.
  if (std::exchange(followed_term_, seat.holder_term) != seat.holder_term)
    follower_->forget_refusal();
  follower_->follow(seat.holder->rank, seat.holder->address, now);
}

// Tries to take the seat while no rank has it and this one reaches no coordinator.
void ElectedRole::run_for_seat(const CoordinatorSeat::State& seat, TimePoint now) {
  if (is_other(seat) || follower_->gave_up()) {
    seat_->want(std::nullopt);
    listener_ = {};
    // A coordinator listens before it has the seat, so its process has ended, and the seat need not
    // wait for the lease.
    if (is_other(seat) && follower_->is_refused()) seat_->end_term(seat.holder_term);
    return;
  }
  const bool runs = seat.known && !seat.holder && follower_->is_lost();
  if (!runs || listener_ || now < listen_at_) return;
  listen_at_ = {};
  HostPort address = options_.listen;
  const bool everywhere = address.host == "0.0.0.0" || address.host == "::";
  if (address.host.empty()) address.host = seat.local_host;
  auto listener = Coordinator::listen(options_, address, Duration::zero());
  if (!listener && listener.error().code == ErrorCode::unauthorized)
    return follower_->give_up(listener.error());
  if (!listener) {
    log::error("cluster: {}. To fix it: {}", listener.error().message, listener.error().fix);
    listen_at_ = now + kListenRetry;
    return;
  }
  listener_ = *std::move(listener);
  const SocketAddress at = local_address(listener_);
  if (everywhere) address.host = seat.local_host;  // the others need one that they reach
  address.port = at.port();
  // Ranks of several hosts cannot find it there; those of one host can.
  if (at.is_loopback() && self_.ranks_per_node < self_.num_ranks)
    log::warning(
        "cluster: this rank would coordinate at {}, which other hosts do not reach: to fix it, "
        "--cluster-listen HOST:PORT with an address that they do, if ranks run on other hosts",
        to_text(address));
  seat_->want(address);
}

void ElectedRole::take_role(const CoordinatorSeat::State& seat) {
  follower_->leave(error(ErrorCode::lost_rank, "it coordinates from now on"));
  // Epochs continue from the last one that any rank knows.
  const uint32_t last = std::max(seat.floor, follower_->view().epoch);
  log::info("cluster: this rank coordinates at {}, from epoch {} on", to_text(seat.holder->address),
            last);
  const bool began = follower_->view().began;
  const int replicas = follower_->view().replicas;
  follower_.reset();
  term_ = seat.term;
  coordinator_ =
      std::make_unique<Coordinator>(options_, self_, poller_, shared_,
                                    Coordinator::Start{.listener = std::exchange(listener_, Fd()),
                                                       .last_epoch = last,
                                                       .began = began,
                                                       .replicas = replicas});
}

void ElectedRole::keep_role(const CoordinatorSeat::State& seat, TimePoint now) {
  if (is_other(seat)) return step_down(fmt::format("rank {} coordinates now", seat.holder->rank));
  if (!seat.mine || now >= seat.until)
    return;  // until the seat is taken again, no epoch is granted
  if (seat.term != term_ && seat.floor > coordinator_->granted_epoch())
    return step_down("another rank may have coordinated meanwhile");
  term_ = seat.term;
  coordinator_->grant(seat.taken);
}

void ElectedRole::step_down(const std::string& why) {
  log::warning("cluster: this rank coordinates no longer: {}", why);
  seat_->want(std::nullopt);
  coordinator_->leave(error(ErrorCode::lost_rank, "{}", why));
  ClusterView known = coordinator_->announced();
  known.over = true;
  known.why = why;
  for (Member& member : known.members)
    if (member.identity.rank != self_.rank) member.state = MemberState::absent;
  coordinator_.reset();
  shared_.publish_status({});
  shared_.publish_over(known);
  follower_ = std::make_unique<Follower>(options_, self_, poller_, shared_,
                                         Follower::Elected{.known = std::move(known)});
}

}  // namespace hocket
