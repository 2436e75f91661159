#include "engine/balance/expert_memory.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

constexpr int64_t kSmall = 4096, kLarge = 3 * kSmall;

// Experts of some layers are larger than those of others.
TEST(ExpertMemory, ASlotThatHeldASmallExpertTakesALargeOneAgain) {
  ExpertMemory memory(*Buffer::allocate(2 * kLarge), {.of_layers = {2, kLarge}, .of_modules = {}});
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
  ExpertMemory memory(*Buffer::allocate(kLarge), {.of_layers = {1, kLarge}, .of_modules = {}});
  const auto large = *memory.take(kLarge);
  const auto small = *memory.take(kSmall);
  memory.give_back({large.data, kLarge});
  memory.give_back({small.data, kSmall});
  EXPECT_EQ(memory.take(kSmall)->data, small.data);
  EXPECT_EQ(memory.take(kLarge)->data, large.data);
}

// Experts of layers leave the slots of modules alone, so these have room whenever theirs move.
TEST(ExpertMemory, ModulesHaveSlotsOfTheirOwn) {
  Buffer planned = *Buffer::allocate(2 * kSmall + kLarge);
  const std::byte* const begin = planned.data();
  ExpertMemory memory(std::move(planned), {.of_layers = {2, kSmall}, .of_modules = {1, kLarge}});
  EXPECT_LT(memory.take(kSmall)->data - begin, 2 * kSmall);
  EXPECT_LT(memory.take(kSmall)->data - begin, 2 * kSmall);
  EXPECT_EQ(memory.take(kLarge)->data - begin, 2 * kSmall);
}

}  // namespace
}  // namespace hocket
