// Tests the answer of POST /scale_ranks.
#include "server/ranks/scale_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hocket {
namespace {

using ::testing::HasSubstr;

RankSet set_of(std::initializer_list<int> ranks) {
  RankSet set;
  for (const int rank : ranks) set.add(rank);
  return set;
}

TEST(ScaleRanks, AllThatWereToldAreNamed) {
  const PeerAnswer there[] = {{.rank = 1, .status = 200}, {.rank = 2, .why = "it is not there"}};
  const auto answer = leaving_answer(set_of({0, 1}), there, {});
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(*answer, Json::parse(R"({"leaving": [0, 1]})"));
}

TEST(ScaleRanks, ARankThatCouldNotBeToldIsNamedWithTheReason) {
  const PeerAnswer there[] = {
      {.rank = 1, .name = "rank 1 (h1)", .status = 200},
      {.rank = 2, .name = "rank 2 (h2)", .status = 0, .why = "connection refused"},
      {.rank = 3, .name = "rank 3 (h3)", .status = 500, .body = "no JSON"}};
  const auto answer = leaving_answer(set_of({1, 2, 3}), there, {});
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(*answer, Json::parse(R"({"leaving": [1], "staying": [2, 3],
      "why": "rank 2 (h2): connection refused; rank 3 (h3): it answered 500"})"));
}

TEST(ScaleRanks, AComplaintThatIsNoTextIsNamedByItsStatus) {
  const auto complaint = [](std::string body) {
    return error_text({.name = "rank 1", .status = 503, .body = std::move(body)});
  };
  EXPECT_EQ(complaint(R"({"error": {"message": "no room"}})"), "rank 1: no room");
  for (const char* const message : {"503", "null", "{}", R"(["no room"])"})
    EXPECT_EQ(complaint(fmt::format(R"({{"error": {{"message": {}}}}})", message)),
              "rank 1: it answered 503");
}

TEST(ScaleRanks, ARankThatDrainsLeavesThoughItsAnswerIsLate) {
  const PeerAnswer there[] = {{.rank = 2, .name = "rank 2 (h2)", .why = "no answer within 5 s"}};
  const auto answer = leaving_answer(set_of({2}), there, set_of({2}));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(*answer, Json::parse(R"({"leaving": [2]})"));
}

TEST(ScaleRanks, ARankThatWasToldAndIsSilentIsNotNamedAsStaying) {
  const PeerAnswer there[] = {
      {.rank = 1, .name = "rank 1 (h1)", .status = 200},
      {.rank = 2, .name = "rank 2 (h2)", .why = "no answer within 5 s", .was_sent = true}};
  const auto answer = leaving_answer(set_of({1, 2}), there, {});
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(*answer, Json::parse(R"({"leaving": [1], "unanswered": [2],
      "why": "rank 2 (h2): no answer within 5 s"})"));
  const auto alone = leaving_answer(set_of({2}), there, {});
  ASSERT_TRUE(alone.has_value());
  EXPECT_EQ(*alone, Json::parse(R"({"leaving": [], "unanswered": [2],
      "why": "rank 2 (h2): no answer within 5 s"})"));
}

TEST(ScaleRanks, ItIsAnErrorIfNoRankLeaves) {
  const PeerAnswer there[] = {{.rank = 2, .name = "rank 2", .why = "connection refused"}};
  const auto answer = leaving_answer(set_of({2}), there, {});
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code, ErrorCode::lost_rank);
  EXPECT_THAT(answer.error().message, HasSubstr("rank 2: connection refused"));
}

}  // namespace
}  // namespace hocket
