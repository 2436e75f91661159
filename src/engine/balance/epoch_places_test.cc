#include "engine/balance/epoch_places.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

RankSet two_of_three() {
  RankSet ranks = RankSet::all(3);
  RankSet last;
  last.add(2);
  return ranks.without(last);
}

// Six experts, and a replica on each of three ranks: 0 1 (2), 2 3 (4), 4 5 (0).
Placements home_of_three() {
  return Placement::contiguous(6, 3)->with_replicas(1);
}

TEST(EpochPlaces, AllRanksHaveThePlacesOfTheStart) {
  const EpochPlaces places(home_of_three(), {true});
  EXPECT_EQ(places.of(RankSet::all(3)).fingerprint(), home_of_three().fingerprint());
  EXPECT_EQ(places.max_lacking(RankSet::all(3)), 0);
}

TEST(EpochPlaces, FewerRanksTakeOverTheExpertsThatAreLost) {
  const EpochPlaces places(home_of_three(), {true});
  const Placements among = places.of(two_of_three());
  EXPECT_TRUE(among.first().experts_of(2).empty());
  EXPECT_EQ(places.max_lacking(two_of_three()), 1) << "expert 5, on one of them";
}

TEST(EpochPlaces, WhatMovedInAnEpochIsLoadedAgain) {
  const Placement home = *Placement::contiguous(4, 2);
  EpochPlaces places(home, {true});
  places.note_end(Placement::of_ranks({{0, 2}, {1, 3}}, 4));
  EXPECT_EQ(places.max_lacking(RankSet::all(2)), 1) << "each lacks one";
}

TEST(EpochPlaces, ARankThatLeavesKeepsItsExperts) {
  const EpochPlaces places(home_of_three(), {true});
  const ExpertChanges changes = places.changes_without_others(home_of_three(), two_of_three());
  ASSERT_EQ(changes.layers.size(), 1u);
  EXPECT_EQ(changes.num_moves, 1);
  const Placement& to = changes.layers[0].to;
  EXPECT_TRUE(std::ranges::equal(to.experts_of(2), home_of_three().first().experts_of(2)));
}

TEST(EpochPlaces, NothingChangesIfThoseThatStayHaveTooFewPlaces) {
  const Placement home = *Placement::contiguous(6, 3);
  const EpochPlaces places(home, {true});
  EXPECT_TRUE(places.changes_without_others(home, two_of_three()).layers.empty());
}

TEST(EpochPlaces, LayersWithoutExpertsLackNothing) {
  const EpochPlaces places(home_of_three(), {false});
  EXPECT_EQ(places.max_lacking(two_of_three()), 0);
  EXPECT_TRUE(places.changes_without_others(home_of_three(), two_of_three()).layers.empty());
}

}  // namespace
}  // namespace hocket
