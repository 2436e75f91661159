// Tests that a loader fills memory that it is given, as experts that move need it.
#include <gtest/gtest.h>

#include <cstring>

#include "compute/weights/loader.h"

namespace hocket {
namespace {

ExpertWeights expert_of(WeightLoader& loader) {
  return loader.swiglu({"g.weight", "u.weight", "d.weight"}, 96, 40);
}

// One expert alone, into memory that had others, has the bytes that it has among others.
TEST(WeightLoader, FillsMemoryThatIsGiven) {
  WeightLoader both = WeightLoader::measuring({.seed = 7});
  both.matrix("m.weight", 70, 33), expert_of(both);
  auto all = WeightLoader::loading({.seed = 7, .bytes = both.bytes()});
  ASSERT_TRUE(all.has_value());
  all->matrix("m.weight", 70, 33);
  const ExpertWeights among = expert_of(*all);
  ASSERT_TRUE(all->status().has_value());

  WeightLoader one = WeightLoader::measuring({.seed = 7});
  expert_of(one);
  const Buffer memory = *Buffer::allocate(one.bytes());
  auto loader = WeightLoader::loading({.seed = 7, .bytes = one.bytes(), .memory = memory.data()});
  ASSERT_TRUE(loader.has_value());
  const ExpertWeights alone = expert_of(*loader);
  ASSERT_TRUE(loader->status().has_value());
  EXPECT_EQ(alone.gate_up.data, static_cast<const void*>(memory.data()));
  EXPECT_EQ(std::memcmp(alone.gate_up.data, among.gate_up.data, among.gate_up.bytes()), 0);
  EXPECT_EQ(std::memcmp(alone.down.data, among.down.data, among.down.bytes()), 0);
  EXPECT_EQ(loader->take_memory().bytes(), 0);
}

}  // namespace
}  // namespace hocket
