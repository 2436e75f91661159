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

// A rank that kept its old mode would wait for the others' steps.
TEST(ModeOfAllRanks, ARankThatHasNotTakenItIsAnError) {
  const Json here = {{"disaggregation_mode", "prefill"}};
  const PeerAnswer took = {.name = "rank 1 (h)", .status = 200, .is_member = true};
  const PeerAnswer silent = {.name = "rank 2 (h)", .why = "no answer", .is_member = true};
  EXPECT_EQ(merge_modes(here, {took}).value(), here);
  const auto failed = merge_modes(here, {took, silent});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, ErrorCode::lost_rank);
  EXPECT_THAT(failed.error().message, testing::HasSubstr("rank 2 (h): no answer"));
}

// It is told the mode when it joins.
TEST(ModeOfAllRanks, ARankThatIsAwayIsNoError) {
  const Json here = {{"disaggregation_mode", "prefill"}};
  const PeerAnswer took = {.name = "rank 1 (h)", .status = 200, .is_member = true};
  const PeerAnswer away = {.name = "rank 2 (h)", .why = "it is not there"};
  EXPECT_EQ(merge_modes(here, {took, away}).value(), here);
}

}  // namespace
}  // namespace hocket
