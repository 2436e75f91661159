#include "cluster/follower.h"

#include <algorithm>

#include "base/log.h"

namespace hocket {
namespace {

constexpr Duration kAnnounceEvery = std::chrono::seconds(5);

}  // namespace

Follower::Follower(const ClusterOptions& options, Identity self, Poller& poller, Shared& shared)
    : options_(options),
      self_(std::move(self)),
      poller_(poller),
      shared_(shared),
      coordinator_(0, options.init_addr),
      lost_since_(RealClock().now()),
      next_announcement_(lost_since_ + std::chrono::seconds(1)) {}

Follower::Follower(const ClusterOptions& options, Identity self, Poller& poller, Shared& shared,
                   Elected elected)
    : Follower(options, std::move(self), poller, shared) {
  coordinator_ = CoordinatorAddress();
  was_in_ = !elected.known.members.empty();
  view_ = std::move(elected.known);
}

void Follower::follow(int rank, const HostPort& address, TimePoint now) {
  if (coordinator_.is(rank, address)) return;
  if (!lost_)
    lose_coordinator(fmt::format("is no longer the coordinator; rank {} is", rank), now);
  else if (attempt_)
    drop_attempt("another rank coordinates now");
  coordinator_ = CoordinatorAddress(rank, address);
  next_dial_ = now;
  refused_ = false;
}

void Follower::on_event(uint64_t token, uint32_t events, TimePoint now) {
  if (current_ && token == current_token_) {
    if ((events & EPOLLOUT) != 0) current_->flush();
    if ((events & ~uint32_t{EPOLLOUT}) != 0) read_current(now);
  } else if (attempt_ && token == attempt_->token()) {
    if (attempt_->is_dialling()) return finish_dial(now);
    if ((events & EPOLLOUT) != 0) attempt_->flush();
    if ((events & ~uint32_t{EPOLLOUT}) != 0) read_attempt(now);
  }
}

void Follower::dial(TimePoint now) {
  next_dial_ =
      now + (lost_ ? options_.redial : std::min(options_.redial, options_.limits.reconnect / 4));
  const auto address = coordinator_.next(lost_);
  if (!address) {
    last_problem_ = address.error().message;
    return;
  }
  if (options_.token.empty() && !options_.insecure && !address->is_loopback())
    return give_up(error(ErrorCode::unauthorized,
                         "ranks across hosts need a cluster token, and {} is no loopback address",
                         address->text())
                       .with_fix("--cluster-token-file FILE on all ranks, or --insecure-cluster "
                                 "where strangers cannot reach the port"));
  auto fd = start_dial(*address);
  refused_ = !fd && fd.error().code == ErrorCode::lost_rank;
  if (!fd) {
    last_problem_ = fd.error().message;
    return;
  }
  tune_socket(*fd, options_.limits.lost_after);
  attempt_.emplace(JoinAttempt::Options{.cluster = options_,
                                        .coordinator = coordinator_,
                                        .poller = poller_,
                                        .join = [this] { return join_message(); }},
                   *std::move(fd), next_token_++, now);
}

void Follower::finish_dial(TimePoint now) {
  auto local_host = attempt_->finish_dial(now);
  refused_ = !local_host && local_host.error().code == ErrorCode::lost_rank;
  if (!local_host) return drop_attempt(local_host.error().message);
  shared_.publish_local_host(*std::move(local_host));
}

JoinMessage Follower::join_message() {
  return {.identity = self_,
          .last_epoch = shared_.last_epoch(),
          .resumes = !lost_,
          .began = view_.began,
          .heartbeat = shared_.own_heartbeat.heartbeat(),
          .replicas = view_.replicas};
}

void Follower::read_attempt(TimePoint now) {
  const uint64_t token = attempt_->token();
  const auto view = attempt_->read();
  if (!view) return end_attempt(view.error());
  if (!view->has_value()) return;
  promote(**view, now);
  // The bytes behind the view belong to the joined connection.
  if (current_ && current_token_ == token) read_current(now);
}

void Follower::end_attempt(const JoinAttempt::Failure& failure) {
  using enum JoinAttempt::Failure::Retry;
  if (failure.retry == none || (failure.retry == members && !was_in_)) give_up(failure.why);
  drop_attempt(failure.why.message);
}

void Follower::drop_attempt(const std::string& why) {
  last_problem_ = why;
  attempt_.reset();
}

void Follower::promote(const ClusterView& view, TimePoint now) {
  if (current_) end_current(now);
  current_ = attempt_->take_connection();
  current_token_ = attempt_->token();
  attempt_.reset();
  cut_at_ = TimePoint::max();
  last_heard_ = now;
  next_heartbeat_ = now;
  if (lost_) log::info("cluster: joined {} as {}", coordinator_.text(), name_of(self_));
  lost_ = false;
  was_in_ = true;
  if (apply(view)) return send_report();
  end_current(now);
  if (view_.members.empty()) lost_ = true;  // there is no epoch to lose
}

void Follower::read_current(TimePoint now) {
  current_->receive();
  while (current_) {
    const auto message = current_->next(kMaxFrameBytes);
    if (!message) {
      log::error("cluster: {}", message.error().message);
      return end_current(now);
    }
    if (!message->has_value()) break;
    last_heard_ = now;
    if (!handle_current(**message, now) && current_) return end_current(now);
  }
  if (current_ && current_->ended()) end_current(now);
}

bool Follower::handle_current(const Message& message, TimePoint now) {
  if (std::holds_alternative<HeartbeatMessage>(message)) return true;
  if (const auto* view = std::get_if<ViewMessage>(&message)) return apply(view->view);
  if (const auto* reply = std::get_if<StoreReply>(&message)) return calls_.finish(*reply), true;
  if (const auto* refused = std::get_if<RefusedMessage>(&message))
    return give_up(reason_of(*refused, coordinator_)), true;
  if (const auto* gone = std::get_if<LeaveMessage>(&message)) {
    lose_coordinator(fmt::format("leaves: {}", gone->why), now);
    return true;
  }
  log::error("cluster: {} sent a message that does not belong here", coordinator_.name());
  return false;
}

bool Follower::apply(const ClusterView& view) {
  if (view.members.size() != static_cast<size_t>(self_.num_ranks) ||
      view.coordinator != coordinator_.rank()) {
    log::error("cluster: {} names {} ranks and rank {} as coordinator; there are {}",
               coordinator_.name(), view.members.size(), view.coordinator, self_.num_ranks);
    return false;
  }
  if (view.over && !view_.over && view.lost >= 0)
    log::error("cluster: epoch {} is over: {}", view.epoch, view.why);
  else if (view.epoch > view_.epoch && !view.over && view.lost >= 0)
    log::error("cluster: lost epoch={} {}", view.epoch, view.why);
  else if (view.whole() && view.epoch != view_.epoch)
    log::info("cluster: all {} ranks are in epoch {}", self_.num_ranks, view.epoch);
  if (view.serves() && !view.whole() && !(view_.serves() && view.epoch == view_.epoch))
    log::warning("cluster: serving epoch={} with {} of {} ranks ({})", view.epoch,
                 view.present().size(), self_.num_ranks, view.present().text());
  view_ = view;
  shared_.publish(view_);
  return true;
}

// Closes a broken connection; the coordinator may still be there.
void Follower::end_current(TimePoint now) {
  current_.reset();
  calls_.fail_all(error(ErrorCode::lost_rank, "the connection to {} ended", coordinator_.name())
                      .with_fix("try again when it is back"));
  cut_at_ = now;
  next_dial_ = now;
}

void Follower::lose_coordinator(const std::string& why, TimePoint now) {
  if (current_) end_current(now);
  if (attempt_) drop_attempt(why);
  cut_at_ = TimePoint::max();
  lost_ = true;
  lost_since_ = now;
  next_announcement_ = now + kAnnounceEvery;
  Member& gone = view_.members[static_cast<size_t>(coordinator_.rank())];
  gone.state = MemberState::absent;
  view_.lost = coordinator_.rank();
  view_.why = cut_why(fmt::format("{} {}", name_of(gone.identity), why));
  log::error("cluster: lost epoch={} {}; waiting for {} for {:g} s", view_.epoch, view_.why,
             options_.store ? "another coordinator" : "it", to_seconds(options_.rank_wait));
  shared_.publish_over(view_);
}

void Follower::give_up(const Error& why) {
  gave_up_ = true;
  lost_ = true;
  if (current_) current_->send(LeaveMessage{cut_why(why.message)});
  current_.reset();
  cut_at_ = TimePoint::max();
  calls_.fail_all(why);
  log::error("cluster: {}", why.message);
  shared_.give_up(why);
}

void Follower::announce(TimePoint now) {
  if (now < next_announcement_) return;
  next_announcement_ = now + kAnnounceEvery;
  log::info("cluster: waiting for {}, {:.0f} s of {:g} s: {}", coordinator_.text(),
            to_seconds(now - lost_since_), to_seconds(options_.rank_wait), last_problem_);
}

bool Follower::may_dial(TimePoint now) const {
  if (attempt_ || gave_up_ || !coordinator_.is_known()) return false;
  return !current_ || now - last_heard_ >= options_.limits.suspect_after;
}

void Follower::on_command(ControlCommand command, TimePoint) {
  if (auto* call = std::get_if<StoreCall>(&command)) {
    if (!current_) {
      call->done.set_value(
          fail(error(ErrorCode::lost_rank, "{} has the ranks' store, and is not reachable",
                     coordinator_.name())
                   .with_fix("try again when it is back")));
    } else if (auto request = calls_.start(std::move(*call))) {
      current_->send(*request);
    }
  } else if (auto* report = std::get_if<ReportMessage>(&command)) {
    unsent_ = std::move(*report);
    send_report();
  }
}

void Follower::on_tick(TimePoint now) {
  if (current_ && current_->ended()) end_current(now);
  if (!lost_ && now - last_heard_ >= options_.limits.lost_after)
    lose_coordinator(fmt::format("is silent for {:.1f} s", to_seconds(now - last_heard_)), now);
  else if (!lost_ && cut_at_ != TimePoint::max() && now - cut_at_ >= options_.limits.reconnect)
    lose_coordinator("ended its connection", now);
  if (attempt_ && attempt_->until() <= now)
    drop_attempt(fmt::format("{}: no answer in time", coordinator_.address_text()));
  if (lost_ && !gave_up_ && now - lost_since_ >= options_.rank_wait)
    give_up(error(ErrorCode::lost_rank, "{} was not there for {:g} s: {}{}{}", coordinator_.text(),
                  to_seconds(options_.rank_wait), view_.why, view_.why.empty() ? "" : "; ",
                  last_problem_)
                .with_fix(options_.store
                              ? "start etcd and the ranks, or wait longer with --rank-wait"
                              : "start rank 0, or wait longer with --rank-wait"));
  if (may_dial(now) && next_dial_ <= now) {
    dial(now);
    if (lost_ && !attempt_ && !gave_up_) announce(now);
  } else if (lost_ && !gave_up_) {
    announce(now);
  }
  if (current_ && next_heartbeat_ <= now) {
    next_heartbeat_ = now + options_.limits.heartbeat;
    current_->send(HeartbeatMessage{shared_.own_heartbeat.heartbeat()});
  }
}

TimePoint Follower::next_deadline() const {
  TimePoint next = TimePoint::max();
  if (!lost_) {
    next = last_heard_ + options_.limits.lost_after;
    if (cut_at_ != TimePoint::max()) next = std::min(next, cut_at_ + options_.limits.reconnect);
  } else if (!gave_up_) {
    next = std::min(lost_since_ + options_.rank_wait, next_announcement_);
  }
  if (attempt_) next = std::min(next, attempt_->until());
  if (current_) next = std::min(next, next_heartbeat_);
  if (!attempt_ && !gave_up_ && coordinator_.is_known()) next = std::min(next, dial_at());
  return next;
}

TimePoint Follower::dial_at() const {
  return current_ ? std::max(next_dial_, last_heard_ + options_.limits.suspect_after) : next_dial_;
}

void Follower::leave(const Error& why) {
  if (current_) current_->send(LeaveMessage{cut_why(why.message)});
  calls_.fail_all(why);
}

}  // namespace hocket
