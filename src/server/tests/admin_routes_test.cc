#include "server/admin_routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(ProfiledTogether, AllFilesAndWhoHasFailed) {
  const auto all = merge_profiles(
      {{"profiling", true}, {"files", {"/tmp/a-rank0"}}},
      {{.name = "rank 1 (h)", .status = 200, .body = R"({"files": ["/tmp/a-rank1"]})"},
       {.name = "rank 2 (h)", .status = 0, .why = "it is not there"}});
  ASSERT_TRUE(all.has_value());
  EXPECT_THAT((*all)["files"], testing::ElementsAre("/tmp/a-rank0", "/tmp/a-rank1"));
  EXPECT_THAT((*all)["failed"], testing::ElementsAre("rank 2 (h): it is not there"));
}

}  // namespace
}  // namespace hocket
