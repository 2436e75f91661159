// Tests which peer is remembered for the next turn of a conversation.
#include "engine/pages/prefix_peers.h"

#include <gtest/gtest.h>

#include <vector>

namespace hocket {
namespace {

// Returns the keys of a conversation's first pages.
std::vector<PageKey> conversation_keys(int conversation, int num_pages) {
  std::vector<PageKey> keys;
  for (int i = 0; i < num_pages; ++i) {
    PageKey key{};
    key[0] = static_cast<uint8_t>(conversation);
    key[1] = static_cast<uint8_t>(conversation / 256);
    key[2] = static_cast<uint8_t>(i);
    keys.push_back(key);
  }
  return keys;
}

TEST(PrefixPeers, TheLongestBeginningCounts) {
  PrefixPeers peers;
  EXPECT_FALSE(peers.find(conversation_keys(1, 20)));
  peers.note(conversation_keys(1, 8), 3);
  EXPECT_FALSE(peers.find(conversation_keys(2, 20)));
  EXPECT_FALSE(peers.find(conversation_keys(1, 6))) << "others may begin like that";
  const auto found = peers.find(conversation_keys(1, 20));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->peer, 3u);
  EXPECT_EQ(found->num_pages, 8u);
  peers.note(conversation_keys(1, 12), 5);
  EXPECT_EQ(peers.find(conversation_keys(1, 20))->peer, 5u);
  EXPECT_EQ(peers.find(conversation_keys(1, 20))->num_pages, 12u);
}

// The next turn begins its answer otherwise, so its page at that place has another key.
TEST(PrefixPeers, AnotherLastPageIsTheSameConversation) {
  PrefixPeers peers;
  peers.note(conversation_keys(1, 8), 3);
  std::vector<PageKey> next = conversation_keys(1, 7);
  for (const PageKey& other : conversation_keys(9, 4)) next.push_back(other);
  const auto found = peers.find(next);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->num_pages, 7u);
}

TEST(PrefixPeers, TheOldestAreForgotten) {
  PrefixPeers peers;
  constexpr int kPrompts = PrefixPeers::kMaxKeys / PrefixPeers::kKeysOfPrompt;
  for (int i = 0; i < 2 * kPrompts + 1; ++i) peers.note(conversation_keys(i, 2), 1);
  EXPECT_FALSE(peers.find(conversation_keys(0, 2)));
  EXPECT_TRUE(peers.find(conversation_keys(kPrompts, 2)));
  EXPECT_TRUE(peers.find(conversation_keys(2 * kPrompts, 2)));
}

}  // namespace
}  // namespace hocket
