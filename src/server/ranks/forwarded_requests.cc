#include "server/ranks/forwarded_requests.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "server/http/retry_after.h"

namespace hocket {
namespace {

constexpr Duration kStillMoves = std::chrono::seconds(1);   // longer than it takes ranks to connect
constexpr Duration kSettles = std::chrono::seconds(10);     // without a coordinator
constexpr Duration kAnswersOut = std::chrono::seconds(60);  // for a rank that is out
constexpr const char* kMendSilence = "look at that rank's log, and end its process if it hangs";

Error silence_of(const Identity& rank) {
  return error(ErrorCode::lost_rank,
               "{} sends heartbeats, but does not answer HTTP: {} probes had no answer within {:g} "
               "s each",
               name_of(rank), RankProbes::kMaxUnanswered, to_seconds(RankProbes::kInterval))
      .with_fix(fmt::format("{}; an operator should {}", kRetryAfterFix, kMendSilence));
}

}  // namespace

ForwardedRequests::Forward& ForwardedRequests::at(uint64_t ticket) {
  const auto found = by_ticket_.find(ticket);
  HOCKET_CHECK(found != by_ticket_.end());
  return found->second;
}

// Without hearing the coordinator this rank does not know which others are there, and a coordinator
// that takes over does not know it at first.
void ForwardedRequests::note_view(const ClusterView& before, const ClusterView& view) {
  if (view.members.empty()) return;
  if (unsettled_since_ && view.serves()) {
    unsettled_since_.reset();
    settled_at_ = RealClock().now();
  }
  const Member& coordinator = view.members[static_cast<size_t>(view.coordinator)];
  const bool is_other = !before.members.empty() && before.coordinator != view.coordinator;
  if (!unsettled_since_ && !view.serves() && (is_other || coordinator.state == MemberState::absent))
    unsettled_since_ = RealClock().now();
}

void ForwardedRequests::lose(const ClusterView& view, int own, const Error& why,
                             HttpClient& client) {
  size_t num_lost = 0;
  const TimePoint now = RealClock().now();
  for (auto& [ticket, forward] : by_ticket_) {
    if (forward.returns || !is_lost(forward, view, own, now)) continue;
    forward.returns = true;
    ++num_lost;
    forward.relay->lose(why);
    client.cancel(forward.call);
  }
  if (num_lost > 0)
    log::warning("forward: {} requests return to this rank: {}", num_lost, why.message);
}

// Returns true if the process that has the request is lost. This rank computes nothing before it
// has a coordinator and ranks serve again, so until then a request stays where it is, unless its
// connection ends or is silent for long. If this rank is out itself, perhaps because it does not
// reach one of the others, it takes requests back whose answers do not move; those that it sent
// while it was out it cannot compute, so they get more time.
bool ForwardedRequests::is_lost(const Forward& forward, const ClusterView& view, int own,
                                TimePoint now) const {
  const Member& member = view.members[static_cast<size_t>(forward.rank)];
  const TimePoint moved = std::max(forward.since, forward.relay->moved_at());
  if (unsettled_since_) return now - std::max(moved, *unsettled_since_) >= kSettles;
  if (member.state != MemberState::member || member.identity.boot_id != forward.boot_id)
    return true;
  if (view.present().has(own)) return false;
  const bool may_return = forward.prepared && !forward.request;
  return !view.serves() ||
         now - std::max(moved, settled_at_) >= (may_return ? kStillMoves : kAnswersOut);
}

// A request whose bytes move needs no probe.
std::vector<int> ForwardedRequests::lose_silent(const ClusterView& view, HttpClient& client) {
  const TimePoint now = RealClock().now();
  std::vector<int> num_lost(view.members.size());  // indexed by rank
  for (auto& [ticket, forward] : by_ticket_) {
    const Identity& rank = view.members[static_cast<size_t>(forward.rank)].identity;
    const TimePoint moved = std::max(forward.since, forward.relay->moved_at());
    if (forward.returns || rank.boot_id != forward.boot_id || now - moved < probes_.interval())
      continue;
    probes_.probe(rank, now);
    if (!probes_.is_silent(rank)) continue;
    forward.returns = true;
    ++num_lost[static_cast<size_t>(forward.rank)];
    forward.relay->lose(silence_of(rank));
    client.cancel(forward.call);
  }
  std::vector<int> silent;
  for (const Member& member : view.members) {
    if (member.state != MemberState::member || !probes_.is_doubtful(member.identity)) continue;
    probes_.probe(member.identity, now);
    if (!probes_.is_silent(member.identity)) continue;
    silent.push_back(member.identity.rank);
    const int num_returning = num_lost[static_cast<size_t>(member.identity.rank)];
    if (num_returning > 0)
      log::warning("forward: {} requests return to this rank: {}. To fix it: {}", num_returning,
                   silence_of(member.identity).message, kMendSilence);
  }
  return silent;
}

void ForwardedRequests::end_all(const Error& why, HttpClient& client) {
  for (const auto& [ticket, forward] : by_ticket_) {
    forward.relay->give_up(why);
    client.cancel(forward.call);
  }
}

}  // namespace hocket
