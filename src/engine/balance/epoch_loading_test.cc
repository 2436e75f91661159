#include "engine/balance/epoch_loading.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TimePoint at_s(int64_t seconds) {
  return TimePoint(std::chrono::seconds(seconds));
}

RankSet first_rank() {
  return RankSet::all(1);
}

TEST(EpochLoading, BeginsOnceForTheSameRanks) {
  EpochLoading epoch(RankSet::all(2));
  EXPECT_FALSE(epoch.begin(RankSet::all(2), at_s(1))) << "the experts of the start are there";
  EXPECT_TRUE(epoch.begin(first_rank(), at_s(1)));
  EXPECT_FALSE(epoch.begin(first_rank(), at_s(2))) << "it is under way";
  EXPECT_FALSE(epoch.has_loaded(first_rank()));
  epoch.finish();
  EXPECT_TRUE(epoch.has_loaded(first_rank()));
  EXPECT_FALSE(epoch.has_loaded(RankSet::all(2)));
  epoch.end();
  EXPECT_TRUE(epoch.begin(first_rank(), at_s(3))) << "experts may have moved in the epoch";
}

TEST(EpochLoading, StandsStillSinceTheLastEventWhileItIsUnderWay) {
  EpochLoading epoch(RankSet::all(2));
  EXPECT_FALSE(epoch.still_since(at_s(0)).has_value());
  epoch.begin(first_rank(), at_s(10));
  EXPECT_EQ(epoch.still_since(at_s(5)), at_s(10));
  EXPECT_EQ(epoch.still_since(at_s(12)), at_s(12));
  epoch.note_progress(at_s(15));
  EXPECT_EQ(epoch.still_since(at_s(12)), at_s(15));
  epoch.give_up(error(ErrorCode::io, "the files hang"));
  EXPECT_FALSE(epoch.still_since(at_s(12)).has_value());
}

TEST(EpochLoading, AnErrorIsNewUntilItIsCleared) {
  EpochLoading epoch(RankSet::all(2));
  EXPECT_TRUE(epoch.note_error(error(ErrorCode::io, "no file")));
  EXPECT_FALSE(epoch.note_error(error(ErrorCode::io, "no file")));
  epoch.clear_error();
  EXPECT_FALSE(epoch.last_error().has_value());
  EXPECT_TRUE(epoch.note_error(error(ErrorCode::io, "no file")));
  epoch.give_up();
  EXPECT_EQ(epoch.final_error()->message, "no file");
}

}  // namespace
}  // namespace hocket
