// Tests on how many replicas of experts ranks agree (ClusterView::replicas).
#include "cluster/membership_testing.h"

namespace hocket {
namespace {

class ReplicasTest : public MembershipTest {
 protected:
  ReplicasTest() : ReplicasTest(Membership::Start()) {}
  explicit ReplicasTest(const Membership::Start& start) : MembershipTest(start) {}
  void have_memory_for(const std::array<int, kRanks>& replicas) {
    for (int rank = 0; rank < kRanks; ++rank) heartbeats_[rank].max_replicas = replicas.at(rank);
  }
};

TEST_F(ReplicasTest, AreTheFewestForWhichARankHasMemory) {
  all_join(0);
  have_memory_for({16, 8, -1, 12});
  live(0, 5000);
  EXPECT_EQ(members_.view().replicas, -1) << "rank 2 has not said it";
  const uint64_t version = members_.version();
  heartbeats_[2].max_replicas = 4;
  live(5000, 5250);
  EXPECT_EQ(members_.view().replicas, 4);
  EXPECT_GT(members_.version(), version) << "the view is sent";
  EXPECT_EQ(members_.view().epoch, 1u);
}

TEST_F(ReplicasTest, ARankWithoutMemoryForOneLeavesNone) {
  all_join(0);
  have_memory_for({16, 0, 16, 16});
  live(0, 250);
  EXPECT_EQ(members_.view().replicas, 0);
}

TEST_F(ReplicasTest, StayAsTheyAreWhenARankIsStartedAnew) {
  all_join(0);
  have_memory_for({16, 8, 16, 16});
  live(0, 250);
  ASSERT_EQ(members_.view().replicas, 8);
  members_.cut(1, at(300));
  members_.tick(at(700));
  EXPECT_TRUE(join(1, 800, "second"));
  have_memory_for({16, 2, 16, 16});
  live(800, 1500);
  EXPECT_EQ(members_.view().replicas, 8);
}

TEST_F(ReplicasTest, ACoordinatorThatIsStartedAnewLearnsThem) {
  have_memory_for({16, 16, 16, 16});
  EXPECT_TRUE(members_.join(
      {.identity = identity(2), .last_epoch = 3, .heartbeat = {}, .replicas = 6}, at(10)));
  EXPECT_EQ(members_.view().replicas, 6);
  EXPECT_TRUE(members_.join({.identity = identity(1), .heartbeat = {}, .replicas = -1}, at(20)));
  EXPECT_TRUE(members_.join({.identity = identity(3), .heartbeat = {}, .replicas = -1}, at(20)));
  live(20, 500);
  EXPECT_EQ(members_.view().replicas, 6);
}

class SomeReplicasTest : public ReplicasTest {
 protected:
  SomeReplicasTest()
      : ReplicasTest({.tolerate_ranks = 1, .begin_after = std::chrono::seconds(20)}) {}
};

// A rank that does not come keeps the others from loading only for a while.
TEST_F(SomeReplicasTest, AreSettledWithoutARankThatDoesNotCome) {
  EXPECT_TRUE(join(1, 10));
  EXPECT_TRUE(join(2, 10));
  have_memory_for({16, 8, 6, 1});
  live(10, 19'500, 3);
  EXPECT_EQ(members_.view().replicas, -1);
  live(19'500, 20'500, 3);
  EXPECT_EQ(members_.view().replicas, 6);
}

}  // namespace
}  // namespace hocket
