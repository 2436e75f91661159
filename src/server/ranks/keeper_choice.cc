#include "server/ranks/keeper_choice.h"

#include <algorithm>

namespace hocket {

std::vector<Identity> choose_keepers(const ClusterView& view, int own, size_t num,
                                     const std::function<bool(const Identity&)>& may_keep) {
  const auto num_ranks = static_cast<int>(view.members.size());
  const std::string& host = view.members.at(static_cast<size_t>(own)).identity.host;
  std::vector<Identity> keepers;
  for (const bool is_elsewhere : {true, false})
    for (int i = 1; i < num_ranks && keepers.size() < num; ++i) {
      const Member& member = view.members[static_cast<size_t>((own + i) % num_ranks)];
      const bool stays = member.state == MemberState::member && !member.leaves;
      if (stays && (member.identity.host != host) == is_elsewhere && may_keep(member.identity))
        keepers.push_back(member.identity);
    }
  return keepers;
}

size_t num_beside_forwarder(size_t num, const Identity& own, const Identity& forwarder,
                            std::span<const Identity> keepers) {
  const size_t fewer = num - std::min<size_t>(num, 1);
  if (forwarder.host != own.host) return fewer;
  const auto num_elsewhere = static_cast<size_t>(std::ranges::count_if(
      keepers, [&](const Identity& keeper) { return keeper.host != own.host; }));
  return std::max(fewer, std::min(num, num_elsewhere));
}

}  // namespace hocket
