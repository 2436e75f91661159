#include "compute/moe/placement.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(Placement, NeighboursShareARank) {
  const Placement placement = *Placement::contiguous(12, 3);
  EXPECT_EQ(placement.num_experts(), 12);
  EXPECT_EQ(placement.num_ranks(), 3);
  EXPECT_EQ(placement.most_experts(), 4);
  for (int expert = 0; expert < 12; ++expert) {
    EXPECT_EQ(placement.rank_of(expert), expert / 4);
    EXPECT_EQ(placement.local_of(expert), expert % 4);
    EXPECT_EQ(placement.place_of(expert), expert);
    EXPECT_EQ(placement.experts_of(expert / 4)[expert % 4], expert);
  }
  for (int rank = 0; rank <= 3; ++rank) EXPECT_EQ(placement.first_of(rank), 4 * rank);
}

TEST(Placement, RanksMustDivideTheExperts) {
  for (const int ranks : {0, -1, 5, 24}) {
    const auto refused = Placement::contiguous(12, ranks);
    ASSERT_FALSE(refused.has_value()) << ranks;
    EXPECT_EQ(refused.error().code, ErrorCode::bad_value);
    EXPECT_NE(refused.error().message.find("12 experts"), std::string::npos);
  }
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

}  // namespace
}  // namespace hocket
