#include "cluster/link_watch.h"

#include <gtest/gtest.h>

#include <thread>

namespace hocket {
namespace {

using std::chrono::milliseconds;

class LinkWatchTest : public ::testing::Test {
 protected:
  static ClusterOptions options(std::string token) {
    return {.token = std::move(token),
            .limits = {.heartbeat = milliseconds(250), .lost_after = std::chrono::seconds(3)}};
  }
  void add(std::string token = "a token of sixteen") {
    const int rank = static_cast<int>(watches_.size());
    watches_.push_back(std::make_unique<LinkWatch>(options(std::move(token)), rank, 3));
    view_.members[static_cast<size_t>(rank)] = {
        .presence = Presence::in,
        .identity = {.rank = rank, .num_ranks = 3, .boot_id = fmt::format("b{}", rank)}};
    if (rank > 0)
      view_.members[static_cast<size_t>(rank)].identity.address =
          "127.0.0.1:" + watches_.back()->port();
  }
  LinkWatch& watch(int rank) { return *watches_[static_cast<size_t>(rank)]; }
  // Lets a heartbeat pass; the ranks in `hears` read what has come.
  std::optional<LinkWatch::Silent> beat(std::initializer_list<int> hears = {1, 2}) {
    now_ += milliseconds(250);
    for (const int rank : {1, 2}) watch(rank).tick(view_, now_);
    std::this_thread::sleep_for(milliseconds(2));
    for (const int rank : hears) watch(rank).receive(now_);
    for (const int rank : {1, 2})
      if (const auto silent = watch(rank).tick(view_, now_)) return silent;
    return std::nullopt;
  }

  std::vector<std::unique_ptr<LinkWatch>> watches_;
  ClusterView view_{.epoch = 1, .members = std::vector<Member>(3)};
  TimePoint now_{std::chrono::hours(1)};
};

TEST_F(LinkWatchTest, ARankThatIsHeardNoLongerIsNamedAfterThreeSeconds) {
  for (int rank = 0; rank < 3; ++rank) add();
  for (int i = 0; i < 40; ++i) ASSERT_FALSE(beat().has_value());
  for (int i = 0; i < 11; ++i) ASSERT_FALSE(beat({2}).has_value()) << i;
  const auto silent = beat({2});
  ASSERT_TRUE(silent.has_value());
  EXPECT_EQ(silent->rank, 2);
  EXPECT_EQ(silent->silence, std::chrono::seconds(3));
}

TEST_F(LinkWatchTest, ASilenceOfTwoSecondsIsSurvived) {
  for (int rank = 0; rank < 3; ++rank) add();
  ASSERT_FALSE(beat().has_value());
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 8; ++i) ASSERT_FALSE(beat({}).has_value());
    ASSERT_FALSE(beat().has_value());
  }
}

TEST_F(LinkWatchTest, ARankThatIsBackHasTheSameTimeAgain) {
  for (int rank = 0; rank < 3; ++rank) add();
  ASSERT_FALSE(beat().has_value());
  view_.members[2].presence = Presence::out;
  for (int i = 0; i < 40; ++i) ASSERT_FALSE(beat({}).has_value());
  view_.members[2].presence = Presence::in;
  for (int i = 0; i < 12; ++i) ASSERT_FALSE(beat({}).has_value()) << i;
  EXPECT_TRUE(beat({}).has_value());
}

TEST_F(LinkWatchTest, ARankThatWasNeverHeardIsNotJudged) {
  add();
  add();
  add("a token that differs");
  for (int i = 0; i < 40; ++i) ASSERT_FALSE(beat().has_value());
}

TEST_F(LinkWatchTest, WithTwoRanksThereIsNothingToWatch) {
  LinkWatch watch(options(""), 1, 2);
  EXPECT_EQ(watch.port(), "");
  EXPECT_FALSE(watch.tick(view_, now_).has_value());
  EXPECT_EQ(watch.next_deadline(), TimePoint::max());
}

}  // namespace
}  // namespace hocket
