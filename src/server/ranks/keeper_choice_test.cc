#include "server/ranks/keeper_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using testing::ElementsAre;

// Returns members whose hosts have these names.
ClusterView ranks_on(const std::vector<std::string>& hosts) {
  ClusterView view{.epoch = 1};
  for (size_t rank = 0; rank < hosts.size(); ++rank)
    view.members.push_back(
        {.state = MemberState::member,
         .identity = {.rank = static_cast<int>(rank), .host = hosts[rank], .boot_id = "b"}});
  return view;
}

std::vector<int> keepers_of(
    int own, const ClusterView& view, size_t num,
    const std::function<bool(const Identity&)>& may_keep = [](const Identity&) { return true; }) {
  std::vector<int> ranks;
  for (const Identity& keeper : choose_keepers(view, own, num, may_keep))
    ranks.push_back(keeper.rank);
  return ranks;
}

TEST(KeeperChoice, RanksOfOtherHostsComeFirst) {
  const ClusterView view = ranks_on({"a", "a", "b", "b"});
  EXPECT_THAT(keepers_of(2, view, 1), ElementsAre(0));
  EXPECT_THAT(keepers_of(2, view, 2), ElementsAre(0, 1));
  EXPECT_THAT(keepers_of(1, view, 2), ElementsAre(2, 3));
  EXPECT_THAT(keepers_of(1, ranks_on({"a", "a", "a", "b"}), 2), ElementsAre(3, 2));
  EXPECT_THAT(keepers_of(0, ranks_on({"a", "a", "a"}), 2), ElementsAre(1, 2));
}

TEST(KeeperChoice, RanksThatGoOrAreNotReachedKeepNothing) {
  ClusterView view = ranks_on({"a", "b", "c", "d"});
  view.members[1].leaves = true;
  view.members[2].state = MemberState::connected;
  EXPECT_THAT(keepers_of(0, view, 2), ElementsAre(3));
  view = ranks_on({"a", "b", "c", "d"});
  EXPECT_THAT(keepers_of(0, view, 2, [](const Identity& one) { return one.rank != 1; }),
              ElementsAre(2, 3));
}

TEST(KeeperChoice, AForwarderOnTheSameHostTakesNoCopyFromAnotherHost) {
  const ClusterView view = ranks_on({"a", "a", "b", "b"});
  const auto num = [&](size_t copies, int forwarder, std::vector<int> keepers) {
    std::vector<Identity> of;
    for (const int rank : keepers) of.push_back(view.members[static_cast<size_t>(rank)].identity);
    return num_beside_forwarder(copies, view.members[0].identity,
                                view.members[static_cast<size_t>(forwarder)].identity, of);
  };
  EXPECT_EQ(num(1, 2, {3}), 0u);
  EXPECT_EQ(num(2, 2, {2, 3}), 1u);
  EXPECT_EQ(num(1, 1, {2}), 1u);
  EXPECT_EQ(num(2, 1, {2, 3}), 2u);
  EXPECT_EQ(num(1, 1, {1}), 0u) << "there is no other host";
}

}  // namespace
}  // namespace hocket
