#include "engine/tier/fetched_tokens.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

TEST(FetchedTokens, AreCountedAsFarAsTheRequestFoundThem) {
  FetchedTokens fetched;
  EXPECT_EQ(fetched.within(1000), PerTier<int>{});
  fetched.add(PageTier::file, 64, 96);
  fetched.add(PageTier::file, 96, 128);
  fetched.add(PageTier::peer, 128, 256);
  EXPECT_EQ(fetched.within(1000), (PerTier<int>{64, 0, 128}));
  EXPECT_EQ(fetched.within(160), (PerTier<int>{64, 0, 32}));
  EXPECT_EQ(fetched.within(64), PerTier<int>{});
  fetched.clear();
  EXPECT_EQ(fetched.within(1000), PerTier<int>{});
}

TEST(FetchedTokens, OfAPageThatWasReadTwiceAreNoMoreThanTheRequestFound) {
  FetchedTokens fetched;
  fetched.add(PageTier::file, 0, 128);
  fetched.add(PageTier::redis, 32, 128);
  const PerTier<int> found = fetched.within(128);
  EXPECT_EQ(found[0] + found[1] + found[2], 128);
}

}  // namespace
}  // namespace hocket
