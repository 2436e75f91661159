#include "engine/balance/expert_memory.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

constexpr int64_t kSmall = 4096, kLarge = 3 * kSmall;

// Experts of some layers are larger than those of others.
TEST(ExpertMemory, ASlotThatHeldASmallExpertTakesALargeOneAgain) {
  ExpertMemory memory(*Buffer::allocate(2 * kLarge), kLarge);
  for (int round = 0; round < 3; ++round) {
    const auto small = *memory.take(kSmall);
    memory.give_back({small.data, kSmall});
    const auto first = *memory.take(kLarge), second = *memory.take(kLarge);
    EXPECT_NE(first.data, second.data);
    memory.give_back({first.data, kLarge});
    memory.give_back({second.data, kLarge});
  }
  // Both are planned memory: another, which is not free, is allocated apart.
  const auto first = *memory.take(kLarge), second = *memory.take(kLarge);
  EXPECT_EQ(std::abs(second.data - first.data), kLarge);
}

TEST(ExpertMemory, TheSmallestSlotThatFitsIsTaken) {
  ExpertMemory memory(*Buffer::allocate(kLarge), kLarge);
  const auto large = *memory.take(kLarge);
  const auto small = *memory.take(kSmall);
  memory.give_back({large.data, kLarge});
  memory.give_back({small.data, kSmall});
  EXPECT_EQ(memory.take(kSmall)->data, small.data);
  EXPECT_EQ(memory.take(kLarge)->data, large.data);
}

}  // namespace
}  // namespace hocket
