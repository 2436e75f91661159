// Tensors of a folder that nobody asked for are named, by patterns.
#include "compute/weights/tracked_weight_source.h"

#include <gtest/gtest.h>

#include "compute/weights/stacked_experts.h"
#include "compute/weights/weight_folder_testing.h"

namespace hocket {
namespace {

TEST(TrackedWeightSource, NamesThatDifferInNumbersAloneAreOne) {
  TestFolder folder;
  const std::vector<float> two = {1, 2};
  for (const char* name : {"norm", "layers.0.x", "layers.10.x", "layers.10.x2", "tower.x"})
    folder.add(name, "F32", {2}, two);
  folder.write_file();
  const auto source = open_model_weights(folder.path(), MoeConfig{});
  ASSERT_TRUE(source.has_value()) << describe(source.error());
  EXPECT_EQ((*source)->unread().size(), 5);
  EXPECT_TRUE((*source)->find("norm").has_value());
  EXPECT_FALSE((*source)->find("layers.0.y").has_value());
  EXPECT_TRUE((*source)->has("layers.0.x")) << "to look is not to read";
  const auto is_tower = [](std::string_view name) { return name.starts_with("tower."); };
  const std::vector<UnreadTensors> unread = unread_tensors(**source, is_tower);
  ASSERT_EQ(unread.size(), 2);
  EXPECT_EQ(unread[0].names, "\"layers.*.x\"");
  EXPECT_EQ(unread[0].count, 2);
  EXPECT_EQ(unread[0].bytes, 16);
  EXPECT_EQ(unread[1].names, "\"layers.*.x2\"");
}

}  // namespace
}  // namespace hocket
