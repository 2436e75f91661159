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

}  // namespace

Membership::Membership(Identity self, const LivenessLimits& limits, TimePoint now,
                       const Start& start)
    : own_(self.rank),
      tolerate_ranks_(start.tolerate_ranks),
      limits_(limits),
      started_(now),
      begin_after_(start.begin_after),
      slots_(static_cast<size_t>(self.num_ranks)),
      why_lost_(slots_.size()) {
  HOCKET_CHECK(own_ >= 0 && own_ < num_ranks());
  HOCKET_CHECK(tolerate_ranks_ >= 0 && (tolerate_ranks_ == 0 || tolerate_ranks_ < num_ranks()));
  view_.epoch = start.last_epoch;
  view_.began = start.began;
  view_.replicas = start.replicas;
  view_.coordinator = own_;
  view_.members.resize(slots_.size());
  for (int rank = 0; rank < num_ranks(); ++rank) member(rank).identity.rank = rank;
  member(own_).identity = std::move(self);
  slot(own_).connected = true;
  slot(own_).last_heard = slot(own_).last_moved = now;
  member(own_).state = MemberState::connected;
  let_in(own_, now);
}

// Epochs count on from the last one that any rank knows, so a wrong number would be everybody's.
Result<void> Membership::check_epoch(const JoinMessage& join) const {
  constexpr uint32_t kMaxKnown = kMaxEpoch - kMaxEpochLead;
  const uint32_t known = std::max(view_.epoch, last_epoch_);
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
  Member& m = member(identity.rank);
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
    if (m.state == MemberState::member) lose(identity.rank, "was started anew");
    m.state = MemberState::absent;
  }
  if (!same_process) {
    if (!m.identity.boot_id.empty()) forget_unreachable(identity.rank);
    s = {};
  }
  if (m.state == MemberState::member && !join.resumes)
    lose(identity.rank, fmt::format("had lost rank {}", own_));
  last_epoch_ = std::max(last_epoch_, join.last_epoch);
  if (join.began) note_began();
  if (view_.replicas < 0) view_.replicas = join.replicas;
  s.connected = true;
  s.cut_at = TimePoint::max();
  s.last_heard = s.last_moved = now;
  s.heartbeat = join.heartbeat;
  if (m.state == MemberState::absent) m.state = MemberState::connected;
  m.identity = identity;
  m.leaves = join.heartbeat.leaves;
  ++version_;
  let_in(identity.rank, now);
  return {};
}

Result<void> Membership::heartbeat(int rank, const Heartbeat& heartbeat, TimePoint now) {
  Slot& s = slot(rank);
  if (!s.connected) return {};
  HOCKET_TRY_VOID(check(heartbeat));
  if (member(rank).state != MemberState::member)
    if (auto e = why_out(member(rank).identity, heartbeat)) return fail(*std::move(e));
  s.last_heard = now;
  if (!s.heartbeat.same_progress(heartbeat)) s.last_moved = now;
  s.heartbeat = heartbeat;
  if (std::exchange(member(rank).leaves, heartbeat.leaves) != heartbeat.leaves) ++version_;
  let_in(rank, now);
  note_begin();
  settle_replicas(now);
  return {};
}

void Membership::cut(int rank, TimePoint now) {
  Slot& s = slot(rank);
  s.connected = false;
  if (member(rank).state == MemberState::member) {
    s.cut_at = now;
  } else if (member(rank).state == MemberState::connected) {
    member(rank).state = MemberState::absent;
    ++version_;
  }
}

void Membership::leave(int rank, std::string_view why) {
  slot(rank).connected = false;
  if (member(rank).state == MemberState::member) lose(rank, fmt::format("leaves: {}", why));
  if (member(rank).state != MemberState::absent) ++version_;
  member(rank).state = MemberState::absent;
}

Duration Membership::silence(const Slot& s, TimePoint now) const {
  return since(s.last_heard, now);
}

Duration Membership::stuck(const Slot& s, TimePoint now) const {
  if (s.heartbeat.state != EngineState::computing) return {};
  return since(s.last_moved + std::chrono::milliseconds(s.heartbeat.expected_ms), now);
}

void Membership::judge_silence(int rank, TimePoint now) {
  Slot& s = slot(rank);
  Member& m = member(rank);
  if (m.state == MemberState::absent) return;
  if (since(s.cut_at, now) >= limits_.reconnect) {
    lose(rank, "ended its connection");
  } else if (silence(s, now) >= limits_.lost_after) {
    s.connected = false;
    if (m.state == MemberState::member)
      lose(rank, fmt::format("is silent for {:.1f} s", to_seconds(silence(s, now))));
    m.state = MemberState::absent;
    ++version_;
  }
}

void Membership::judge_stuck(TimePoint now) {
  using Progress = std::tuple<uint64_t, uint32_t>;
  std::vector<int> found;
  Progress furthest_behind{};
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const Slot& s = slot(rank);
    if (member(rank).state != MemberState::member || stuck(s, now) < limits_.lost_after) continue;
    const Progress progress{s.heartbeat.step, s.heartbeat.stage};
    if (!found.empty() && progress > furthest_behind) continue;
    if (!found.empty() && progress < furthest_behind) found.clear();
    furthest_behind = progress;
    found.push_back(rank);
  }
  for (const int rank : found) {
    const Slot& s = slot(rank);
    pause(rank, now);
    lose(rank, fmt::format("stands still in step {}, stage {}, {:.1f} s longer than it needs",
                           s.heartbeat.step, s.heartbeat.stage, to_seconds(stuck(s, now))));
  }
}

void Membership::warn(int rank, TimePoint now) {
  Slot& s = slot(rank);
  const Duration quiet = std::max(silence(s, now), stuck(s, now));
  const bool suspect = member(rank).state == MemberState::member && quiet >= limits_.suspect_after;
  if (suspect && !s.suspect)
    log::warning("cluster: {} is {} for {:.1f} s; it is given up after {:.1f} s",
                 name_of(member(rank).identity),
                 silence(s, now) >= limits_.suspect_after ? "silent" : "stuck", to_seconds(quiet),
                 to_seconds(limits_.lost_after));
  s.suspect = suspect;
}

void Membership::tick(TimePoint now) {
  end_gathering(now);
  for (int rank = 0; rank < num_ranks(); ++rank)
    if (rank != own_) judge_silence(rank, now);
  judge_stuck(now);
  begin_without_missing(now);
  settle_replicas(now);
  for (int rank = 0; rank < num_ranks(); ++rank) {
    warn(rank, now);
    let_in(rank, now);
  }
}

TimePoint Membership::next_deadline() const {
  TimePoint next = TimePoint::max();
  const auto consider = [&](TimePoint then, Duration patience) {
    if (then != TimePoint::max()) next = std::min(next, then + patience);
  };
  if (view_.tolerate_ranks != tolerate_ranks_) next = started_ + limits_.gather;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& s = slots_[i];
    const MemberState state = view_.members[i].state;
    if (state == MemberState::absent) continue;
    consider(s.cut_at, limits_.reconnect);
    const bool is_own = static_cast<int>(i) == own_;
    if (!is_own) consider(s.last_heard, limits_.lost_after);
    if (!is_own && state == MemberState::member && !s.suspect)
      consider(s.last_heard, limits_.suspect_after);
    if (state == MemberState::member && s.heartbeat.state == EngineState::computing) {
      const TimePoint late = s.last_moved + std::chrono::milliseconds(s.heartbeat.expected_ms);
      consider(late, limits_.lost_after);
      if (!s.suspect) consider(late, limits_.suspect_after);
    }
    if (state == MemberState::connected && s.connected && s.heartbeat.state == EngineState::closed)
      consider(s.pause_until, Duration::zero());
  }
  return next;
}

std::vector<RankStatus> Membership::status(TimePoint now) const {
  std::vector<RankStatus> all;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Member& m = view_.members[i];
    const bool absent = m.state == MemberState::absent;
    all.push_back({.state = m.state,
                   .suspect = slots_[i].suspect,
                   .host = m.identity.host,
                   .heartbeat = slots_[i].heartbeat,
                   .silence = absent || static_cast<int>(i) == own_ ? Duration::zero()
                                                                    : silence(slots_[i], now)});
  }
  return all;
}

int Membership::first_missing() const {
  const auto found = std::ranges::find_if(
      view_.members, [](const Member& m) { return m.state != MemberState::member; });
  return found == view_.members.end() ? -1 : found->identity.rank;
}

std::string Membership::with_reasons(const std::string& why) const {
  std::string text = why;
  for (size_t rank = 0; rank < why_lost_.size(); ++rank) {
    const std::string& other = why_lost_[rank];
    const bool is_missing = view_.members[rank].state != MemberState::member;
    if (is_missing && !other.empty() && other != why) text += (text.empty() ? "" : "; ") + other;
  }
  return cut_why(text);
}

void Membership::next_epoch() {
  last_epoch_ = view_.epoch = std::max(view_.epoch, last_epoch_) + 1;
  ++version_;
}

void Membership::lose(int rank, const std::string& why) {
  Member& m = member(rank);
  Slot& s = slot(rank);
  m.state = s.connected ? MemberState::connected : MemberState::absent;
  s.suspect = false;
  s.cut_at = TimePoint::max();
  ++version_;
  if (view_.epoch == 0) return;  // not all ranks were there yet, so no step is open
  next_epoch();
  view_.lost = rank;
  std::string& reason = why_lost_[static_cast<size_t>(rank)];
  reason = cut_why(fmt::format("{} {}", name_of(m.identity), why));
  log::error("cluster: lost epoch={} {}", view_.epoch, reason);
  view_.why = with_reasons(reason);
  if (view_.serves()) log_members();
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

// The lowest member is right, as it is where ranks meet (ClusterNetwork). At the start all are
// members while they load, so there they find out when they meet.
std::optional<Error> Membership::why_out(const Identity& identity,
                                         const Heartbeat& heartbeat) const {
  if (!heartbeat.ready()) return std::nullopt;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Heartbeat& theirs = slots_[i].heartbeat;
    if (view_.members[i].state != MemberState::member || !theirs.ready()) continue;
    if (theirs.terms == heartbeat.terms) return std::nullopt;
    return other_terms(view_.members[i].identity, theirs.terms, identity, heartbeat.terms);
  }
  return std::nullopt;
}

void Membership::let_in(int rank, TimePoint now) {
  Member& m = member(rank);
  Slot& s = slot(rank);
  const bool loads = tolerate_ranks_ > 0 && view_.began && !s.heartbeat.ready();
  const bool ready = m.state == MemberState::connected && s.connected && now >= s.pause_until &&
                     s.heartbeat.state == EngineState::closed && !loads;
  if (!ready || why_out(m.identity, s.heartbeat)) return;
  if (stays_apart(rank, now)) return;
  m.state = MemberState::member;
  why_lost_[static_cast<size_t>(rank)].clear();
  s.in_since = now;
  s.in_after = view_.epoch;
  ++version_;
  const bool all = std::ranges::all_of(
      view_.members, [](const Member& other) { return other.state == MemberState::member; });
  // The service may have begun though no epoch is known: a coordinator began without some ranks
  // and lost the seat before etcd took its epoch.
  if (view_.epoch == 0 && last_epoch_ == 0 && !all && !view_.began) return;
  next_epoch();
  if (view_.lost == rank) view_.lost = first_missing();
  if (std::string others = with_reasons(""); !others.empty()) view_.why = std::move(others);
  if (all) {
    log::info("cluster: all {} ranks are in epoch {}", num_ranks(), view_.epoch);
  } else {
    log::info("cluster: back epoch={} {}", view_.epoch, name_of(m.identity));
    if (view_.serves()) log_members();
  }
}

}  // namespace hocket
