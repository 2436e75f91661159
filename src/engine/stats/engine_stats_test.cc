// Tests the sums over the ranks of a process.
#include "engine/stats/engine_stats.h"

#include <gtest/gtest.h>

namespace hocket {
namespace {

// Ranks share the stores and peers of their process, so each has the counts of all.
TEST(EngineStats, CountsOfStoresAndPeersThatRanksShareCountOnce) {
  RankStats rank;
  CacheTierStats& tier = rank.tier.emplace();
  tier.peer_pages_total = 3, tier.peer_short_prompts_total = 2, tier.served_pages_total = 4;
  tier.damaged_total = 5, tier.evicted_total = 6, tier.num_prefills = 7;
  tier.pages_read_total = 10;
  PageTierStats& peer = tier.tiers[static_cast<size_t>(PageTier::peer)];
  peer.failures_total = 8, peer.tokens_total = 100;
  const EngineStats sum = add_up({rank, rank, rank});
  ASSERT_TRUE(sum.tier.has_value());
  EXPECT_EQ(sum.tier->peer_pages_total, 3u);
  EXPECT_EQ(sum.tier->peer_short_prompts_total, 2u);
  EXPECT_EQ(sum.tier->served_pages_total, 4u);
  EXPECT_EQ(sum.tier->damaged_total, 5u);
  EXPECT_EQ(sum.tier->evicted_total, 6u);
  EXPECT_EQ(sum.tier->num_prefills, 7);
  const PageTierStats& peers = sum.tier->tiers[static_cast<size_t>(PageTier::peer)];
  EXPECT_EQ(peers.failures_total, 8u);
  // Each rank reads its own pages.
  EXPECT_EQ(sum.tier->pages_read_total, 30u);
  EXPECT_EQ(peers.tokens_total, 300u);
}

}  // namespace
}  // namespace hocket
