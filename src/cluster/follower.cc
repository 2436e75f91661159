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
      target_(options.init_addr),
      lost_since_(RealClock().now()),
      next_announcement_(lost_since_ + std::chrono::seconds(1)) {}

Follower::Follower(const ClusterOptions& options, Identity self, Poller& poller, Shared& shared,
                   Elected elected)
    : Follower(options, std::move(self), poller, shared) {
  coordinator_ = -1;
  target_.reset();
  was_in_ = !elected.known.members.empty();
  view_ = std::move(elected.known);
}

Follower::~Follower() {
  if (candidate_ && candidate_->dialled) poller_.remove(candidate_->dialled);
}

std::string Follower::target_name() const {
  return coordinator_ < 0 ? "a coordinator" : fmt::format("rank {}", coordinator_);
}

std::string Follower::target() const {
  return target_ ? fmt::format("{} at {}", target_name(), to_text(*target_)) : target_name();
}

void Follower::follow(int rank, const HostPort& address, TimePoint now) {
  if (rank == coordinator_ && target_ == address) return;
  if (!lost_)
    lose_coordinator(fmt::format("is no longer the coordinator; rank {} is", rank), now);
  else if (candidate_)
    drop_candidate(now, "another rank coordinates now");
  coordinator_ = rank;
  target_ = address;
  addresses_.clear();
  next_address_ = 0;
  next_dial_ = now;
  refused_ = false;
}

void Follower::on_event(uint64_t token, uint32_t events, TimePoint now) {
  if (current_ && token == current_token_) {
    if ((events & EPOLLOUT) != 0) current_->flush();
    if ((events & ~uint32_t{EPOLLOUT}) != 0) read_current(now);
  } else if (candidate_ && token == candidate_->token) {
    if (candidate_->phase == Phase::dialling) return connected(now);
    if ((events & EPOLLOUT) != 0) candidate_->connection->flush();
    if ((events & ~uint32_t{EPOLLOUT}) != 0) read_candidate(now);
  }
}

void Follower::promote(const ClusterView& view, TimePoint now) {
  if (current_) end_current(now);
  current_ = std::move(candidate_->connection);
  current_token_ = candidate_->token;
  candidate_.reset();
  cut_at_ = TimePoint::max();
  last_heard_ = now;
  next_heartbeat_ = now;
  if (lost_) log::info("cluster: joined {} as {}", target(), name_of(self_));
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
    return give_up(reason_of(*refused)), true;
  if (const auto* gone = std::get_if<LeaveMessage>(&message)) {
    lose_coordinator(fmt::format("leaves: {}", gone->why), now);
    return true;
  }
  log::error("cluster: {} sent a message that does not belong here", target_name());
  return false;
}

bool Follower::apply(const ClusterView& view) {
  if (view.members.size() != static_cast<size_t>(self_.num_ranks) ||
      view.coordinator != coordinator_) {
    log::error("cluster: {} names {} ranks and rank {} as coordinator; there are {}", target_name(),
               view.members.size(), view.coordinator, self_.num_ranks);
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
  calls_.fail_all(error(ErrorCode::lost_rank, "the connection to {} ended", target_name())
                      .with_fix("try again when it is back"));
  cut_at_ = now;
  next_dial_ = now;
}

void Follower::lose_coordinator(const std::string& why, TimePoint now) {
  if (current_) end_current(now);
  if (candidate_) drop_candidate(now, why);
  cut_at_ = TimePoint::max();
  lost_ = true;
  lost_since_ = now;
  next_announcement_ = now + kAnnounceEvery;
  Member& gone = view_.members[static_cast<size_t>(coordinator_)];
  gone.state = MemberState::absent;
  view_.lost = coordinator_;
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
  log::info("cluster: waiting for {}, {:.0f} s of {:g} s: {}", target(),
            to_seconds(now - lost_since_), to_seconds(options_.rank_wait), last_problem_);
}

bool Follower::may_dial(TimePoint now) const {
  if (candidate_ || gave_up_ || !target_) return false;
  return !current_ || now - last_heard_ >= options_.limits.suspect_after;
}

void Follower::on_command(ControlCommand command, TimePoint) {
  if (auto* call = std::get_if<StoreCall>(&command)) {
    if (!current_) {
      call->done.set_value(
          fail(error(ErrorCode::lost_rank, "{} keeps the store, and is not there", target_name())
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
  if (candidate_ && candidate_->until <= now)
    drop_candidate(now, fmt::format("{}: no answer in time", to_text(*target_)));
  if (lost_ && !gave_up_ && now - lost_since_ >= options_.rank_wait)
    give_up(error(ErrorCode::lost_rank, "{} was not there for {:g} s: {}{}{}", target(),
                  to_seconds(options_.rank_wait), view_.why, view_.why.empty() ? "" : "; ",
                  last_problem_)
                .with_fix(options_.store
                              ? "start etcd and the ranks, or wait longer with --rank-wait"
                              : "start rank 0, or wait longer with --rank-wait"));
  if (may_dial(now) && next_dial_ <= now) {
    dial(now);
    if (lost_ && !candidate_ && !gave_up_) announce(now);
  } else if (lost_ && !gave_up_) {
    announce(now);
  }
  if (current_ && next_heartbeat_ <= now) {
    next_heartbeat_ = now + options_.limits.heartbeat;
    current_->send(HeartbeatMessage{shared_.heartbeat_state.heartbeat()});
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
  if (candidate_) next = std::min(next, candidate_->until);
  if (current_) next = std::min(next, next_heartbeat_);
  if (!candidate_ && !gave_up_ && target_) next = std::min(next, dial_at());
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
