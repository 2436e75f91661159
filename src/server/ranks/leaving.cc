// Which ranks may leave a running service.
#include "server/ranks/rank_router.h"
#include "server/ranks/scale_ranks.h"

namespace hocket {

Result<ScaleRanks> parse_scale_ranks(const Json& body) {
  Fields fields(body);
  ScaleRanks wanted;
  int keep = 0;
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

Result<RankSet> RankRouter::ranks_to_leave(const ScaleRanks& wanted) const {
  if (!wanted.keep) return wanted.leave;
  const ClusterView view = options_.cluster->view();
  const RankSet present = view.present();
  if (*wanted.keep >= present.size())
    return fail(error(ErrorCode::invalid_request, "keep is {}, and {} ranks are there",
                      *wanted.keep, present.size())
                    .with_fix("keep fewer ranks; to add one, start its process")
                    .with_param("keep"));
  RankSet leave;
  for (int rank = RankSet::kMaxRank; present.size() - leave.size() > *wanted.keep; --rank)
    if (present.has(rank) && rank != view.coordinator) leave.add(rank);
  return leave;
}

Result<void> RankRouter::may_leave(const RankSet& leaving) const {
  const ClusterView view = options_.cluster->view();
  const auto refuse = [](std::string why, std::string fix) {
    return fail(error(ErrorCode::invalid_request, "{}", why).with_fix(std::move(fix)));
  };
  const RankSet present = view.present();
  if (view.tolerate_ranks == 0)
    return refuse("the others would pause without these ranks", "start all with --tolerate-ranks");
  if (!view.began) return refuse("not all ranks have been ready yet", "ask again when they are");
  if (const RankSet absent = leaving.without(present); absent.size() > 0)
    return refuse(fmt::format("the ranks {} are not there", absent.text()),
                  "name ranks that /readyz lists");
  const int left = present.without(leaving).size();
  const auto least = static_cast<int>(view.members.size()) - view.tolerate_ranks;
  if (left < least)
    return refuse(
        fmt::format("{} ranks would be left; with --tolerate-ranks {} the service needs {}", left,
                    view.tolerate_ranks, least),
        "let fewer leave");
  if (!options_.has_store && leaving.has(view.coordinator))
    return refuse(fmt::format("rank {} knows the members, so the others would pause without it",
                              view.coordinator),
                  "name other ranks, or start all with --cluster-store");
  return {};
}

RankSet RankRouter::own_host() const {
  const Identity& self = options_.cluster->self();
  const int first = self.rank - self.rank % self.ranks_per_node;
  RankSet ranks;
  for (int i = 0; i < self.ranks_per_node; ++i) ranks.add(first + i);
  return ranks;
}

}  // namespace hocket
