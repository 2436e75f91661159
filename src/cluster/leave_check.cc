#include "cluster/leave_check.h"

#include <utility>

namespace hocket {

Result<void> may_leave(const ClusterView& view, const RankSet& leaving,
                       EligibleCoordinators coordinators) {
  const auto refuse = [](std::string why, std::string fix) {
    return fail(error(ErrorCode::invalid_request, "{}", why).with_fix(std::move(fix)));
  };
  if (view.tolerate_ranks == 0)
    return refuse("the others would pause without these ranks", "start all with --tolerate-ranks");
  if (!view.began) return refuse("not all ranks have been ready yet", "ask again when they are");
  if (const RankSet absent = leaving.without(view.present()); absent.size() > 0)
    return refuse(fmt::format("the ranks {} are not there", absent.text()),
                  "name ranks that /readyz lists");
  const int left = view.staying().without(leaving).size();
  const auto least = static_cast<int>(view.members.size()) - view.tolerate_ranks;
  if (left < least)
    return refuse(
        fmt::format("{} ranks would be left; with --tolerate-ranks {} the service needs {}", left,
                    view.tolerate_ranks, least),
        "let fewer leave");
  if (coordinators != EligibleCoordinators::any && leaving.has(view.coordinator))
    return refuse(fmt::format("rank {} knows the members, so the others would pause without it",
                              view.coordinator),
                  "name other ranks, or start all with --cluster-store");
  if (!view.may_lose(leaving))
    return refuse(
        fmt::format("rank {} is not among the {} ranks that would be left, and fewer than "
                    "{} do not serve without it",
                    view.coordinator, left, view.tolerate_ranks + 1),
        fmt::format("wait until rank {} has loaded, or let fewer leave", view.coordinator));
  // Enough are there, but not in an epoch yet.
  if (!view.serves())
    return refuse(fmt::format("the ranks do not serve now: {}", missing(view)),
                  "ask again when /readyz says that they do");
  return {};
}

}  // namespace hocket
