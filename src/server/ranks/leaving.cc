// Decides which ranks leave a running service, remembers those that were told, makes the answer of
// POST /scale_ranks, and chooses the rank that a process joins as.
#include "cluster/leaving.h"

#include "server/ranks/rank_router.h"
#include "server/ranks/scale_ranks.h"

namespace hocket {
namespace {

// Within this time the beat of a rank that was told to leave is in the view.
constexpr Duration kBeatsArrive = std::chrono::seconds(5);

}  // namespace

Json to_json(const RankSet& ranks) {
  Json list = Json::array();
  for (int rank = 0; rank <= RankSet::kMaxRank; ++rank)
    if (ranks.has(rank)) list.push_back(rank);
  return list;
}

Result<ScaleRanks> parse_scale_ranks(const Json& body) {
  Fields fields(body);
  ScaleRanks wanted;
  int keep = 0;
  fields.read("decided", wanted.is_decided);
  if (fields.read("keep", keep, 1, RankSet::kMaxRank + 1)) wanted.keep = keep;
  if (const Json* const ranks = fields.array("leave", RankSet::kMaxRank + 1))
    for (const Json& rank : *ranks) {
      if (rank.is_number_unsigned() && rank.get<uint64_t>() <= RankSet::kMaxRank)
        wanted.leave.add(rank.get<int>());
      else
        fields.fail_field("leave", "has an entry that is no rank");
    }
  if (fields.ok() && wanted.keep.has_value() == (wanted.leave.size() > 0))
    fields.fail(error(ErrorCode::invalid_request, "either leave or keep is needed, and not both")
                    .with_fix(R"(send {"leave": [RANK, ...]} or {"keep": NUMBER})")
                    .with_param("leave"));
  return fields.finish_with(wanted);
}

Result<Json> leaving_answer(const RankSet& told, std::span<const PeerAnswer> answers) {
  RankSet failed;
  std::string why;
  for (const PeerAnswer& peer : answers)
    if (told.has(peer.rank) && peer.status != 200) {
      failed.add(peer.rank);
      why += (why.empty() ? "" : "; ") + complaint_of(peer);
    }
  const RankSet leaving = told.without(failed);
  if (leaving.size() == 0)
    return fail(error(ErrorCode::lost_rank, "none of these ranks leaves: {}", why)
                    .with_fix("/readyz says which ranks are there"));
  Json answer{{"leaving", to_json(leaving)}};
  if (!why.empty()) {
    answer["staying"] = to_json(failed);
    answer["why"] = why;
  }
  return answer;
}

// A rank that was told to leave says so in its next beat; until then this rank knows better.
ClusterView RankRouter::view_with_leaving() const {
  ClusterView view = options_.cluster->view();
  const TimePoint now = RealClock().now();
  MutexLock lock(mutex_);
  for (size_t rank = 0; rank < view.members.size(); ++rank)
    if (now < leaving_[rank].until && leaving_[rank].boot_id == view.members[rank].identity.boot_id)
      view.members[rank].leaves = true;
  return view;
}

void RankRouter::note_leaving(const RankSet& leaving) {
  const ClusterView view = options_.cluster->view();
  const TimePoint until = RealClock().now() + kBeatsArrive;
  if (leaving.has(rank())) options_.cluster->pulse().leave();
  MutexLock lock(mutex_);
  for (size_t rank = 0; rank < view.members.size(); ++rank)
    if (leaving.has(static_cast<int>(rank)))
      leaving_[rank] = {.boot_id = view.members[rank].identity.boot_id, .until = until};
}

Result<RankSet> RankRouter::ranks_to_leave(const ScaleRanks& wanted) const {
  const ClusterView view = view_with_leaving();
  const RankSet staying = view.staying();
  if (!wanted.keep) {
    const RankSet present = view.present();
    // The named ranks that are present, but do not stay.
    const RankSet already = wanted.leave.without(staying).without(wanted.leave.without(present));
    if (already.size() == 0) return wanted.leave;
    return fail(error(ErrorCode::invalid_request, "the ranks {} leave already", already.text())
                    .with_fix("name others")
                    .with_param("leave"));
  }
  if (*wanted.keep >= staying.size())
    return fail(error(ErrorCode::invalid_request, "keep is {}, and {} ranks stay", *wanted.keep,
                      staying.size())
                    .with_fix("keep fewer ranks; to add one, start its process")
                    .with_param("keep"));
  RankSet leave;
  for (int rank = RankSet::kMaxRank; staying.size() - leave.size() > *wanted.keep; --rank)
    if (staying.has(rank) && rank != view.coordinator) leave.add(rank);
  return leave;
}

Result<void> RankRouter::may_leave(const RankSet& leaving) const {
  return hocket::may_leave(view_with_leaving(), leaving,
                           options_.has_store ? Coordinators::any : Coordinators::rank_0);
}

// Requests come on several threads. One decision waits for the other, so that two that are allowed
// each alone do not add up to too many.
Result<RankSet> RankRouter::decide_leaving(const ScaleRanks& wanted) {
  const MutexLock lock(deciding_);
  HOCKET_TRY(const RankSet leaving, ranks_to_leave(wanted));
  HOCKET_TRY_VOID(may_leave(leaving));
  note_leaving(leaving);
  return leaving;
}

// Processes that ask one after the other get different ranks, though none of them has joined yet.
Result<int> RankRouter::offer_rank() {
  const ClusterView view = view_with_leaving();
  const RankSet staying = view.staying();
  if (view.present().has(rank()) && !staying.has(rank()))
    return fail(
        error(ErrorCode::invalid_request, "rank {} leaves the service", rank())
            .with_fix(staying.size() == 0
                          ? std::string("join when the service has been started again")
                          : fmt::format("join through a rank that stays: {}", staying.text())));
  MutexLock lock(mutex_);
  int chosen = -1;
  for (const Member& member : view.members) {
    if (member.presence != Presence::absent) continue;
    const int rank = member.identity.rank;
    if (chosen < 0 ||
        offered_at_[static_cast<size_t>(rank)] < offered_at_[static_cast<size_t>(chosen)])
      chosen = rank;
  }
  if (chosen < 0)
    return fail(error(ErrorCode::invalid_request, "all {} ranks are there", view.members.size())
                    .with_fix("join when one has left; for more ranks, start the service anew with "
                              "a larger --nnodes"));
  offered_at_[static_cast<size_t>(chosen)] = RealClock().now();
  return chosen;
}

RankSet RankRouter::own_host() const {
  const Identity& self = options_.cluster->self();
  const int first = self.rank - self.rank % self.ranks_per_node;
  RankSet ranks;
  for (int i = 0; i < self.ranks_per_node; ++i) ranks.add(first + i);
  return ranks;
}

}  // namespace hocket
