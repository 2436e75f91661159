#include "cluster/membership.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace hocket {
namespace {

// Returns now - then, at least 0.
Duration since(TimePoint then, TimePoint now) {
  return std::max(Duration::zero(), now - then);
}

// Returns the expected time of the rank's open step. A rank that says more than an hour would never
// be stuck.
Duration expected_time(const Heartbeat& heartbeat) {
  constexpr Duration kMax = std::chrono::hours(1);
  return std::min<Duration>(std::chrono::milliseconds(heartbeat.expected_ms), kMax);
}

}  // namespace

Membership::Membership(Identity self, const LivenessLimits& limits, TimePoint now,
                       const Start& start)
    : own_(self.rank),
      limits_(limits),
      slots_(static_cast<size_t>(self.num_ranks)),
      heartbeats_(slots_.size()),
      links_(limits, self.num_ranks),
      begin_({.tolerate_ranks = start.tolerate_ranks,
              .gather = limits.gather,
              .begin_after = start.begin_after},
             now),
      epochs_(std::move(self),
              {.last_epoch = start.last_epoch, .began = start.began, .replicas = start.replicas}) {
  const int tolerated = start.tolerate_ranks;
  HOCKET_CHECK(tolerated >= 0 && (tolerated == 0 || tolerated < num_ranks()));
  slot(own_).connected = true;
  slot(own_).last_heard = slot(own_).last_moved = now;
  let_in(own_, now);
}

// Epochs count on from the last one that any rank knows, so a wrong number would spread to all
// ranks.
Result<void> Membership::check_epoch(const JoinMessage& join) const {
  constexpr uint32_t kMaxKnown = kMaxEpoch - kMaxEpochLead;
  const uint32_t known = epochs_.last_known();
  const uint32_t max_epoch =
      known == 0 ? kMaxKnown : std::max(known, std::min(known + kMaxEpochLead, kMaxKnown));
  if (join.last_epoch <= max_epoch) return {};
  return fail(error(ErrorCode::lost_rank, "{} says that it was in epoch {}; the last one is {}",
                    name_of(join.identity), join.last_epoch, known)
                  .with_fix("restart that rank; if all say so, restart them all"));
}

Result<void> Membership::join(const JoinMessage& join, TimePoint now) {
  const Identity& identity = join.identity;
  HOCKET_TRY_VOID(check(identity));
  if (auto e = disagreement(member(own_).identity, identity)) return fail(*std::move(e));
  if (identity.rank == own_)
    return fail(
        error(ErrorCode::lost_rank, "{} is rank {} already", name_of(member(own_).identity), own_)
            .with_fix("give every process a rank of its own"));
  HOCKET_TRY_VOID(check(join.heartbeat));
  HOCKET_TRY_VOID(check_epoch(join));
  const Member& m = member(identity.rank);
  Slot& s = slot(identity.rank);
  if (m.state != MemberState::member)
    if (auto e = why_out(identity, join.heartbeat)) return fail(*std::move(e));
  const bool same_process = m.identity.boot_id == identity.boot_id;
  if (m.state != MemberState::absent && !same_process) {
    const bool alive = s.connected && since(s.last_heard, now) < limits_.suspect_after;
    if (alive)
      return fail(error(ErrorCode::queue_full, "{} is there already, as process {}",
                        name_of(m.identity), m.identity.boot_id)
                      .with_fix("give every process a rank of its own"));
    if (m.state == MemberState::member) lose(identity.rank, "was restarted");
    epochs_.set_state(identity.rank, MemberState::absent);
  }
  if (!same_process) forget_process(identity.rank);
  if (m.state == MemberState::member && !join.resumes)
    lose(identity.rank, fmt::format("had lost rank {}", own_));
  epochs_.note_known(join.last_epoch);
  if (join.began) begin_.note_began(epochs_, heartbeats_);
  if (view().replicas < 0) epochs_.set_replicas(join.replicas);
  s.connected = true;
  s.cut_at = TimePoint::max();
  s.last_heard = s.last_moved = now;
  last_heartbeat(identity.rank) = join.heartbeat;
  epochs_.note_joined(identity, join.heartbeat.leaves);
  let_in(identity.rank, now);
  return {};
}

// No rank can have missed datagrams of the new process yet.
void Membership::forget_process(int rank) {
  if (!member(rank).identity.boot_id.empty()) {
    RankSet gone;
    gone.add(rank);
    for (Heartbeat& heartbeat : heartbeats_)
      heartbeat.unreachable = heartbeat.unreachable.without(gone);
  }
  slot(rank) = {};
  last_heartbeat(rank) = {};
  links_.forget(rank);
}

Result<void> Membership::heartbeat(int rank, const Heartbeat& heartbeat, TimePoint now) {
  Slot& s = slot(rank);
  if (!s.connected) return {};
  HOCKET_TRY_VOID(check(heartbeat));
  if (member(rank).state != MemberState::member)
    if (auto e = why_out(member(rank).identity, heartbeat)) return fail(*std::move(e));
  s.last_heard = now;
  if (!last_heartbeat(rank).same_progress(heartbeat)) s.last_moved = now;
  last_heartbeat(rank) = heartbeat;
  epochs_.set_leaves(rank, heartbeat.leaves);
  let_in(rank, now);
  begin_.note_ready(epochs_, heartbeats_);
  begin_.settle_replicas(epochs_, heartbeats_, now);
  return {};
}

void Membership::cut(int rank, TimePoint now) {
  Slot& s = slot(rank);
  s.connected = false;
  if (member(rank).state == MemberState::member)
    s.cut_at = now;
  else
    epochs_.set_state(rank, MemberState::absent);
}

void Membership::leave(int rank, std::string_view why) {
  slot(rank).connected = false;
  if (member(rank).state == MemberState::member) lose(rank, fmt::format("leaves: {}", why));
  epochs_.set_state(rank, MemberState::absent);
}

void Membership::report(const Report& report, TimePoint now) {
  if (report.epoch != view().epoch || view().epoch == 0) return;  // all ranks know already
  if (member(report.by).state != MemberState::member) return;     // it is in no epoch
  const std::string& by = name_of(member(report.by).identity);
  if (report.rank < 0) {
    epochs_.begin_next();
    epochs_.set_why(epochs_.with_reasons(fmt::format("{} gave up the step: {}", by, report.why)));
    log::warning("cluster: epoch={} {}", view().epoch, view().why);
    return;
  }
  if (report.rank >= num_ranks() || member(report.rank).state != MemberState::member) return;
  const std::string& its = name_of(member(report.rank).identity);
  const Slot& reporter = slot(report.by);
  const bool is_new = reporter.in_after > slot(report.rank).in_after &&
                      now - reporter.in_since < limits_.good_after;
  const int cut_by = CutLinks::of(report.by, view(), heartbeats_).size();
  const int cut_its = CutLinks::of(report.rank, view(), heartbeats_).size();
  if (cut_by > cut_its) {
    pause(report.by, now);
    lose(report.by, fmt::format("misses {}, and has {} cut links, where that has {}: {}", its,
                                cut_by, cut_its, report.why));
  } else if (cut_by == cut_its && is_new) {
    pause(report.by, now);
    lose(report.by, fmt::format("misses {}, which was in before it: {}", its, report.why));
  } else {
    pause(report.rank, now);
    lose(report.rank, fmt::format("is missed by {}: {}", by, report.why));
  }
}

Duration Membership::silence(int rank, TimePoint now) const {
  return since(slot(rank).last_heard, now);
}

Duration Membership::stuck(int rank, TimePoint now) const {
  const Heartbeat& heartbeat = last_heartbeat(rank);
  if (heartbeat.state != EngineState::computing) return {};
  return since(slot(rank).last_moved + expected_time(heartbeat), now);
}

void Membership::judge_silence(int rank, TimePoint now) {
  Slot& s = slot(rank);
  if (member(rank).state == MemberState::absent) return;
  if (since(s.cut_at, now) >= limits_.reconnect) {
    lose(rank, "ended its connection");
  } else if (silence(rank, now) >= limits_.lost_after) {
    s.connected = false;
    if (member(rank).state == MemberState::member)
      lose(rank, fmt::format("is silent for {:.1f} s", to_seconds(silence(rank, now))));
    epochs_.set_state(rank, MemberState::absent);
  }
}

void Membership::judge_stuck(TimePoint now) {
  using Progress = std::tuple<uint64_t, uint32_t>;
  std::vector<int> found;
  Progress furthest_behind{};
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const bool is_in = member(rank).state == MemberState::member;
    if (!is_in || stuck(rank, now) < limits_.lost_after) continue;
    const Progress progress{last_heartbeat(rank).step, last_heartbeat(rank).stage};
    if (!found.empty() && progress > furthest_behind) continue;
    if (!found.empty() && progress < furthest_behind) found.clear();
    furthest_behind = progress;
    found.push_back(rank);
  }
  for (const int rank : found) {
    const Heartbeat& heartbeat = last_heartbeat(rank);
    pause(rank, now);
    lose(rank, fmt::format("makes no progress in step {}, stage {}, {:.1f} s longer than it needs",
                           heartbeat.step, heartbeat.stage, to_seconds(stuck(rank, now))));
  }
}

void Membership::warn(int rank, TimePoint now) {
  Slot& s = slot(rank);
  const Duration quiet = std::max(silence(rank, now), stuck(rank, now));
  const bool suspect = member(rank).state == MemberState::member && quiet >= limits_.suspect_after;
  if (suspect && !s.suspect)
    log::warning("cluster: {} is {} for {:.1f} s; it is given up after {:.1f} s",
                 name_of(member(rank).identity),
                 silence(rank, now) >= limits_.suspect_after ? "silent" : "stuck",
                 to_seconds(quiet), to_seconds(limits_.lost_after));
  s.suspect = suspect;
}

void Membership::tick(TimePoint now) {
  begin_.end_gathering(epochs_, now);
  for (int rank = 0; rank < num_ranks(); ++rank)
    if (rank != own_) judge_silence(rank, now);
  judge_stuck(now);
  begin_.begin_without_missing(epochs_, heartbeats_, now);
  begin_.settle_replicas(epochs_, heartbeats_, now);
  for (int rank = 0; rank < num_ranks(); ++rank) {
    warn(rank, now);
    let_in(rank, now);
  }
}

TimePoint Membership::next_deadline() const {
  TimePoint next = begin_.next_deadline(epochs_);
  const auto consider = [&](TimePoint then, Duration patience) {
    if (then != TimePoint::max()) next = std::min(next, then + patience);
  };
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const Slot& s = slot(rank);
    const Heartbeat& heartbeat = last_heartbeat(rank);
    const MemberState state = member(rank).state;
    if (state == MemberState::absent) continue;
    consider(s.cut_at, limits_.reconnect);
    const bool is_own = rank == own_;
    if (!is_own) consider(s.last_heard, limits_.lost_after);
    if (!is_own && state == MemberState::member && !s.suspect)
      consider(s.last_heard, limits_.suspect_after);
    if (state == MemberState::member && heartbeat.state == EngineState::computing) {
      const TimePoint late = s.last_moved + expected_time(heartbeat);
      consider(late, limits_.lost_after);
      if (!s.suspect) consider(late, limits_.suspect_after);
    }
    if (state == MemberState::connected && s.connected && heartbeat.state == EngineState::closed)
      consider(s.pause_until, Duration::zero());
  }
  return next;
}

std::vector<RankStatus> Membership::status(TimePoint now) const {
  std::vector<RankStatus> all;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const Member& m = member(rank);
    const bool is_heard = m.state != MemberState::absent && rank != own_;
    all.push_back({.state = m.state,
                   .suspect = slot(rank).suspect,
                   .host = m.identity.host,
                   .heartbeat = last_heartbeat(rank),
                   .silence = is_heard ? silence(rank, now) : Duration::zero()});
  }
  return all;
}

void Membership::lose(int rank, const std::string& why) {
  Slot& s = slot(rank);
  s.suspect = false;
  s.cut_at = TimePoint::max();
  epochs_.lose(rank, s.connected ? MemberState::connected : MemberState::absent, why);
}

void Membership::pause(int rank, TimePoint now) {
  Slot& s = slot(rank);
  const bool good = since(s.in_since, now) >= limits_.good_after;
  s.pause = good || s.pause == Duration::zero() ? limits_.pause
                                                : std::min(s.pause * 2, limits_.max_pause);
  s.pause_until = now + s.pause;
  log::warning("cluster: {} is taken back in {:g} s at the earliest",
               name_of(member(rank).identity), to_seconds(s.pause));
}

// The lowest member is right, as where ranks connect (ClusterNetwork). At the start all are
// members while they load, so they find out when they connect.
std::optional<Error> Membership::why_out(const Identity& identity,
                                         const Heartbeat& heartbeat) const {
  if (!heartbeat.ready()) return std::nullopt;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const Heartbeat& theirs = last_heartbeat(rank);
    if (member(rank).state != MemberState::member || !theirs.ready()) continue;
    if (theirs.terms == heartbeat.terms) return std::nullopt;
    return other_terms(member(rank).identity, theirs.terms, identity, heartbeat.terms);
  }
  return std::nullopt;
}

void Membership::let_in(int rank, TimePoint now) {
  const Member& m = member(rank);
  const Heartbeat& heartbeat = last_heartbeat(rank);
  Slot& s = slot(rank);
  const bool loads = begin_.keeps_loading_out(view()) && !heartbeat.ready();
  const bool ready = m.state == MemberState::connected && s.connected && now >= s.pause_until &&
                     heartbeat.state == EngineState::closed && !loads;
  if (!ready || why_out(m.identity, heartbeat)) return;
  if (links_.keeps_out(rank, view(), heartbeats_, now)) return;
  s.in_since = now;
  s.in_after = view().epoch;
  epochs_.take_in(rank);
}

}  // namespace hocket
