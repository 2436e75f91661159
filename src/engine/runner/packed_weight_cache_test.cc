// Tests that writing packed weights delays a server that ends only as long as it has patience.
#include "engine/runner/packed_weight_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

namespace hocket {
namespace {

TEST(PackedWeightCache, AServerThatEndsGetsTheFileWholeInItsPatienceOrNone) {
  const std::filesystem::path folder =
      testing::TempDir() + fmt::format("kept_weights_{}", getpid());
  const std::vector<std::byte> packed(size_t{256} << 20);
  const PackedKey key{.packing = 1, .source = 2, .bytes = std::ssize(packed)};
  {
    PackedWeightCache kept(folder.string(), folder / "m.weights", key, Duration(0));
    EXPECT_FALSE(kept.write(packed, PackedWeightCache::Packed::stay));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  {
    PackedWeightCache kept(folder.string(), folder / "m.weights", key, std::chrono::minutes(5));
    EXPECT_FALSE(kept.write(packed, PackedWeightCache::Packed::stay));
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "m.weights"));
  std::filesystem::remove(folder / "m.weights");
  {
    PackedWeightCache kept(folder.string(), folder / "m.weights", key);
    EXPECT_FALSE(kept.write(packed, PackedWeightCache::Packed::may_change));
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "m.weights"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace hocket
