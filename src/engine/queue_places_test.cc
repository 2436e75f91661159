#include "engine/queue_places.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/client_name.h"

namespace hocket {
namespace {

// A queue of texts that wait for ever. Returns how many of at most `most` texts of a client enter.
struct FloodedQueue {
  explicit FloodedQueue(int count) : places(count, false), num_places(count) {}
  bool enter(uint64_t proven, uint64_t claimed = 0) {
    RequestInput input;
    input.client = client_name(proven, claimed);
    if (!places.enter(input, static_cast<int>(waiting.size()))) return false;
    waiting.push_back(std::move(input));
    return true;
  }
  int flood(uint64_t proven) {
    int num_in = 0;
    while (num_in <= num_places && enter(proven, static_cast<uint64_t>(num_in))) ++num_in;
    return num_in;
  }

  QueuePlaces places;
  const int num_places;
  std::vector<RequestInput> waiting;
};

// It claims another name for each text, which changes nothing.
TEST(QueuePlaces, AClientThatFloodsTheQueueLeavesRoomToOthers) {
  FloodedQueue queue(1024);
  EXPECT_EQ(queue.flood(1), 896);
  EXPECT_EQ(queue.flood(2), 112);
  EXPECT_EQ(queue.flood(3), 14);
  EXPECT_TRUE(queue.enter(4));
  EXPECT_FALSE(queue.enter(1)) << "it has its share";
}

TEST(QueuePlaces, ASmallQueueIsAClientsAlone) {
  FloodedQueue queue(7);
  EXPECT_EQ(queue.flood(1), 7);
  EXPECT_FALSE(queue.enter(2)) << "no place is left";
}

TEST(QueuePlaces, NobodyInParticularMayHaveAllPlaces) {
  FloodedQueue queue(64);
  EXPECT_EQ(queue.flood(0), 64);
}

TEST(QueuePlaces, APlaceIsFreeAgainWhenItsTextHasBegunOrEnded) {
  QueuePlaces places(16, false);
  const auto enter = [&](RequestInput& input) {
    input.client = client_name(1, 1);
    return places.enter(input, 15).has_value();
  };
  std::vector<RequestInput> inputs(7);
  for (RequestInput& input : inputs) EXPECT_TRUE(enter(input));
  RequestInput next;
  EXPECT_FALSE(enter(next));
  RequestInput copy = inputs.front();
  inputs.front().queue_place.reset();
  EXPECT_FALSE(enter(next)) << "the copy has it still";
  copy.queue_place.reset();
  EXPECT_TRUE(enter(next));
  inputs.clear();
  EXPECT_TRUE(enter(copy));
}

TEST(QueuePlaces, WithPrioritiesTheSchedulerDecides) {
  QueuePlaces places(8, true);
  RequestInput input;
  input.client = client_name(1, 1);
  EXPECT_TRUE(places.enter(input, 8));
  EXPECT_EQ(input.queue_place, nullptr);
}

}  // namespace
}  // namespace hocket
