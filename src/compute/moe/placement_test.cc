#include "compute/moe/placement.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace hocket {
namespace {

TEST(Placement, NeighboursShareARank) {
  const Placement placement = *Placement::contiguous(12, 3);
  EXPECT_EQ(placement.num_experts(), 12);
  EXPECT_EQ(placement.num_ranks(), 3);
  EXPECT_EQ(placement.max_experts(), 4);
  for (int expert = 0; expert < 12; ++expert) {
    EXPECT_EQ(placement.rank_of(expert), expert / 4);
    EXPECT_EQ(placement.local_at(placement.place_of(expert)), expert % 4);
    EXPECT_EQ(placement.place_of(expert), expert);
    EXPECT_EQ(placement.experts_of(expert / 4)[expert % 4], expert);
  }
}

TEST(Placement, WholeGroupsAreSpreadAsEvenlyAsTheyCanBe) {
  const auto sizes = [](int num_experts, int num_ranks, int num_groups) {
    const Placement placement = *Placement::contiguous(num_experts, num_ranks, num_groups);
    std::vector<size_t> of;
    for (int rank = 0; rank < num_ranks; ++rank) of.push_back(placement.experts_of(rank).size());
    EXPECT_EQ(placement.max_experts(), static_cast<int>(*std::ranges::max_element(of)));
    EXPECT_EQ(placement.experts_of(placement.fullest_rank()).size(), *std::ranges::max_element(of));
    EXPECT_TRUE(placement.check_groups(num_groups).has_value());
    return of;
  };
  EXPECT_EQ(sizes(16, 3, 16), (std::vector<size_t>{5, 5, 6}));
  EXPECT_EQ(sizes(16, 3, 8), (std::vector<size_t>{4, 6, 6}));
  EXPECT_EQ(sizes(12, 4, 12), (std::vector<size_t>{3, 3, 3, 3}));
  EXPECT_EQ(sizes(12, 5, 6), (std::vector<size_t>{2, 2, 2, 2, 4}));
}

TEST(Placement, EveryRankHasAGroup) {
  for (const int ranks : {0, -1, 13, 24}) {
    const auto refused = Placement::contiguous(12, ranks);
    ASSERT_FALSE(refused.has_value()) << ranks;
    EXPECT_EQ(refused.error().code, ErrorCode::bad_value);
    EXPECT_NE(refused.error().message.find("12 groups of experts"), std::string::npos);
  }
  EXPECT_FALSE(Placement::contiguous(12, 5, 4).has_value());
  EXPECT_TRUE(Placement::contiguous(0, 2).has_value());  // a dense model
}

TEST(Placement, EveryCombineGroupIsOnOneRank) {
  const Placement placement = *Placement::contiguous(12, 3);
  for (const int groups : {3, 6, 12}) EXPECT_TRUE(placement.check_groups(groups).has_value());
  for (const int groups : {0, 1, 2, 4, 5, 24}) {
    const auto refused = placement.check_groups(groups);
    ASSERT_FALSE(refused.has_value()) << groups;
    EXPECT_EQ(refused.error().code, ErrorCode::bad_value);
    EXPECT_EQ(refused.error().param, "combine-groups");
  }
}

class PlacementFile : public ::testing::Test {
 protected:
  ~PlacementFile() override { std::filesystem::remove(file_); }
  // Puts all experts in order where the first has rows, else the other way round.
  static Placement place_by_first(std::span<const uint64_t> loads) {
    return loads[0] > 0 ? *Placement::contiguous(6, 2)
                        : Placement::of_places(std::array{5, 4, 3, 2, 1, 0}, 6, 2);
  }
  // Reads a placement of six experts on two ranks.
  Result<Placements> read_layers(std::string_view text) {
    std::ofstream(file_, std::ios::binary) << text;
    return Placements::from_file(file_, 6, 2, 3, place_by_first);
  }
  Result<Placement> read(std::string_view text) {
    HOCKET_TRY(const Placements all, read_layers(text));
    EXPECT_EQ(all.num_layers(), 1);
    return all.first();
  }
  void expect_refused(std::string_view text, std::string_view why) {
    const auto refused = read(text);
    ASSERT_FALSE(refused.has_value()) << text;
    EXPECT_EQ(refused.error().code, ErrorCode::bad_value);
    EXPECT_EQ(refused.error().param, "init-expert-location");
    EXPECT_NE(refused.error().message.find(why), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find(file_.string()), std::string::npos);
    EXPECT_FALSE(refused.error().fix.empty());
  }
  const std::filesystem::path file_ =
      std::filesystem::path(::testing::TempDir()) /
      fmt::format("hocket-places-{}.json", static_cast<int>(getpid()));
};

TEST_F(PlacementFile, PutsExpertsWhereItSays) {
  const char* const texts[] = {
      "[5, 0, 3,  4, 2, 1]", R"({"physical_to_logical_map": [5, 0, 3, 4, 2, 1]})",
      R"({"other": 1, "physical_to_logical_map": [[5, 0, 3, 4, 2, 1], [5, 0, 3, 4, 2, 1]]})"};
  for (const char* const text : texts) {
    const auto placement = read(text);
    ASSERT_TRUE(placement.has_value()) << describe(placement.error());
    EXPECT_EQ(placement->num_ranks(), 2);
    EXPECT_TRUE(std::ranges::equal(placement->experts_of(0), std::array{0, 3, 5}));
    EXPECT_TRUE(std::ranges::equal(placement->experts_of(1), std::array{1, 2, 4}));
    EXPECT_EQ(placement->local_at(placement->place_of(3)), 1);
    EXPECT_NE(placement->fingerprint(), Placement::contiguous(6, 2)->fingerprint());
  }
  EXPECT_EQ(read("[2, 0, 1, 4, 3, 5]")->fingerprint(), Placement::contiguous(6, 2)->fingerprint());
}

TEST_F(PlacementFile, WhatIsNoPlacementIsRefusedByItsFault) {
  expect_refused("", "not JSON");
  expect_refused("[0, 1", "not JSON");
  expect_refused("7", "no list");
  expect_refused("{}", "no \"physical_to_logical_map\"");
  expect_refused(R"({"logical_count": [[1, 2]]})", "has no list for each of 3 layers");
  expect_refused(R"({"logical_count": [[1, 2], [], []]})", "layer 0: its counts are no list of 6");
  expect_refused(R"({"logical_count": [[0,0,0,0,0,0], [0,0,0,0,0,-1], 3]})", "-1 is no count");
  expect_refused(R"({"logical_count": [[0,0,0,0,0,9007199254740993], [], []]})", "is no count in");
  expect_refused(R"({"physical_to_logical_map": {"0": [0]}})", "no list");
  expect_refused("[]", "expert 0 is nowhere");
  expect_refused("[0, 1, 2, 3, 5]", "5 places for 6 experts: expert 4 is nowhere");
  expect_refused("[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0]", "13 places for 6 experts on 2 ranks");
  expect_refused("[0, 1, 2, 3, 4, 4]", "6 places for 6 experts: expert 5 is nowhere");
  expect_refused("[0, 1, 2, 3, 4, 6]", "place 5 has 6, which is no expert in 0 to 5");
  expect_refused("[0, -1, 2, 3, 4, 5]", "place 1 has -1");
  expect_refused("[0, 1.5, 2, 3, 4, 5]", "place 1 has 1.5");
  expect_refused("[0, 18446744073709551615, 2, 3, 4, 5]", "place 1 has 18446744073709551615");
  expect_refused("[[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 5, 4]]",
                 "2 lists of places that differ, for 3 layers");
  expect_refused("[[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], 3]", "layer 2: its places are no list");
  expect_refused("[[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 0, 1], [0, 1, 2, 3, 4, 5]]",
                 "layer 1 has 8 places, layer 0 has 6");
  expect_refused(std::string(100'000, '['), "not JSON");
  expect_refused(std::string(100'000, '[') + std::string(100'000, ']'),
                 "nested deeper than 64 levels");
  expect_refused(std::string((16 << 20) + 1, ' '), "larger than 16 MB");
}

TEST_F(PlacementFile, LayersMayDiffer) {
  const auto placements = read_layers("[[0,1,2,3,4,5], [5,4,3,2,1,0], [0,2,4,1,3,5]]");
  ASSERT_TRUE(placements.has_value()) << describe(placements.error());
  EXPECT_TRUE(placements->differ());
  EXPECT_EQ(placements->num_layers(), 3);
  EXPECT_EQ(placements->at(1).rank_of(5), 0);
  EXPECT_EQ(placements->at(2).rank_of(4), 0);
  EXPECT_EQ(placements->at(3).rank_of(4), 0);  // a module's layer is as the last
  EXPECT_EQ(placements->held_by(1), (HeldExperts{{3, 4, 5}, {0, 1, 2}, {1, 3, 5}}));
  EXPECT_NE(placements->fingerprint(), read("[0,1,2,3,4,5]")->fingerprint());
}

TEST_F(PlacementFile, CountsArePlacedLayerByLayer) {
  const auto placements = read_layers(
      R"({"logical_count": [[1, 2, 3, 4, 5, 6], [0, 2, 3, 4, 5, 6], [9, 0, 0, 0, 0, 0]]})");
  ASSERT_TRUE(placements.has_value()) << describe(placements.error());
  EXPECT_EQ(placements->at(0).rank_of(5), 1);
  EXPECT_EQ(placements->at(1).rank_of(5), 0);
  EXPECT_EQ(placements->at(2).rank_of(5), 1);
}

TEST_F(PlacementFile, AnExpertMayHaveSeveralPlaces) {
  const auto placement = read("[5, 0, 3, 1,  5, 4, 2, 1]");
  ASSERT_TRUE(placement.has_value()) << describe(placement.error());
  EXPECT_TRUE(placement->has_replicas());
  EXPECT_EQ(placement->num_places(), 8);
  EXPECT_TRUE(std::ranges::equal(placement->experts_of(0), std::array{0, 1, 3, 5}));
  EXPECT_TRUE(std::ranges::equal(placement->experts_of(1), std::array{1, 2, 4, 5}));
  EXPECT_TRUE(std::ranges::equal(placement->places_of(5), std::array{3, 7}));
  EXPECT_TRUE(std::ranges::equal(placement->places_of(2), std::array{5}));
  EXPECT_EQ(placement->rank_at(7), 1);
  EXPECT_EQ(placement->local_at(7), 3);
  EXPECT_EQ(placement->expert_at(7), 5);
  EXPECT_TRUE(placement->check_groups(6).has_value());
  EXPECT_FALSE(placement->check_groups(3).has_value());
}

TEST(Placement, ReplicasFollowARanksOwnExperts) {
  const Placement placement = Placement::contiguous(6, 3)->with_replicas(2);
  EXPECT_TRUE(std::ranges::equal(placement.experts_of(0), std::array{0, 1, 2, 3}));
  EXPECT_TRUE(std::ranges::equal(placement.experts_of(1), std::array{2, 3, 4, 5}));
  EXPECT_TRUE(std::ranges::equal(placement.experts_of(2), std::array{0, 1, 4, 5}));
  for (int expert = 0; expert < 6; ++expert) EXPECT_EQ(placement.places_of(expert).size(), 2u);
}

// With as many replicas as experts, a host that is lost takes none along.
TEST(Placement, ReplicasAreOnOtherHostsThanTheirOriginals) {
  for (const auto& [ranks, per_host] : {std::pair{4, 2}, {6, 3}, {6, 2}, {8, 2}, {8, 4}, {3, 1}}) {
    const int experts = 5 * ranks;
    for (const bool filled : {false, true}) {
      const Placement plain = *Placement::contiguous(experts, ranks);
      const Placement all =
          filled ? plain.filled_to(10, per_host) : plain.with_replicas(5, per_host);
      for (int expert = 0; expert < experts; ++expert) {
        const std::span<const int> places = all.places_of(expert);
        ASSERT_EQ(places.size(), 2u);
        EXPECT_NE(all.rank_at(places[0]) / per_host, all.rank_at(places[1]) / per_host)
            << "expert " << expert << " of " << ranks << " ranks, " << per_host << " on a host";
      }
    }
  }
  const Placement one_host = *Placement::contiguous(6, 3);
  EXPECT_EQ(one_host.with_replicas(2, 3).fingerprint(), one_host.with_replicas(2).fingerprint());
}

TEST(Placement, IsFilledUpOnEveryRank) {
  const Placement placement = Placement::contiguous(5, 2)->filled_to(4);
  EXPECT_TRUE(std::ranges::equal(placement.experts_of(0), std::array{0, 1, 2, 3}));
  EXPECT_TRUE(std::ranges::equal(placement.experts_of(1), std::array{0, 2, 3, 4}));
  EXPECT_EQ(placement.fewest_places(1), 4);
  EXPECT_EQ(Placement::contiguous(16, 3)->fewest_places(2), 10);
}

TEST(Placement, TheOthersTakeOverTheExpertsOfAnAbsentRank) {
  const Placement placement = Placement::contiguous(6, 3)->with_replicas(1);
  RankSet present;
  present.add(0);
  present.add(2);
  const Placement left = placement.among(present);
  EXPECT_EQ(left.num_ranks(), 3);
  EXPECT_TRUE(std::ranges::equal(left.experts_of(0), std::array{1, 2, 3}));
  EXPECT_TRUE(left.experts_of(1).empty());
  EXPECT_TRUE(std::ranges::equal(left.experts_of(2), std::array{0, 4, 5}));
}

TEST(Placement, WhoeverIsLeftHasAllExperts) {
  for (const int ranks : {2, 3, 4, 7})
    for (int lost = 1; lost < ranks; ++lost)
      for (int first = 0; first < ranks; ++first) {
        constexpr int kMany = 19;
        const int places = (kMany + ranks - lost - 1) / (ranks - lost);
        const Placement all = Placement::contiguous(kMany, ranks)->filled_to(places);
        RankSet present;
        for (int i = 0; i < ranks - lost; ++i) present.add((first + i) % ranks);
        const Placement left = all.among(present);
        for (int rank = 0; rank < ranks; ++rank) {
          const auto before = all.experts_of(rank), now = left.experts_of(rank);
          ASSERT_EQ(now.size(), present.has(rank) ? before.size() : 0u);
        }
        for (int expert = 0; expert < kMany; ++expert) ASSERT_GE(left.places_of(expert).size(), 1u);
        EXPECT_EQ(all.among(RankSet::all(ranks)).fingerprint(), all.fingerprint());
      }
}

TEST(Placements, ALayerMayGetOtherPlaces) {
  const Placements all(*Placement::contiguous(4, 2));
  Placements layers = all.by_layer(3);
  EXPECT_EQ(layers.num_layers(), 3);
  EXPECT_FALSE(layers.differ());
  EXPECT_EQ(layers.fingerprint(), all.fingerprint());
  Placement other = Placement::of_ranks({{0, 2}, {1, 3}}, 4);
  layers.swap(1, other);
  EXPECT_TRUE(layers.differ());
  EXPECT_TRUE(std::ranges::equal(layers.at(1).experts_of(0), std::array{0, 2}));
  EXPECT_EQ(other.fingerprint(), all.fingerprint());
  EXPECT_EQ(layers.at(0).fingerprint(), all.fingerprint());
}

TEST_F(PlacementFile, IsAFileThatCanBeRead) {
  for (const std::filesystem::path& path : {file_ / "none", std::filesystem::path("/")}) {
    const auto refused = Placements::from_file(path, 6, 2, 3, place_by_first);
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::io);
    EXPECT_NE(refused.error().message.find(path.string()), std::string::npos);
  }
  EXPECT_EQ(Placements::from_file(file_, 6, 7, 3, place_by_first).error().param, "ep-size");
}

TEST_F(PlacementFile, GroupsStayWhole) {
  const Placement pairs = *read("[0, 1, 4,  5, 2, 3]");
  EXPECT_TRUE(pairs.check_groups(6).has_value());
  for (const int groups : {2, 3}) {
    const auto refused = pairs.check_groups(groups);
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().fix.find("--combine-groups 6"), std::string::npos);
  }
  const auto swapped = Placement(*read("[3, 4, 5, 0, 1, 2]"));
  EXPECT_TRUE(swapped.check_groups(2).has_value());
  EXPECT_NE(swapped.check_groups(1).error().fix.find("--combine-groups 2"), std::string::npos);
}

}  // namespace
}  // namespace hocket
