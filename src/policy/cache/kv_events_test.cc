// Checks what listeners know of the prefix cache after every kind of change, on both sides.
#include "policy/cache/kv_events.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <set>

#include "policy/cache/radix_cache.h"

namespace hocket {
namespace {

using Tokens = std::vector<TokenId>;

// The knowledge of a client that follows the events.
struct Listener {
  std::map<PageHash, PageHash> parent_of;
  int num_cleared = 0;
  uint64_t num_dropped = 0;

  void read(KvEventChannel& channel) {
    while (const auto event = channel.pop()) {
      if (event->kind == KvEvent::Kind::stored) parent_of[event->hash] = event->parent;
      if (event->kind == KvEvent::Kind::removed) parent_of.erase(event->hash);
      if (event->kind != KvEvent::Kind::cleared) continue;
      parent_of.clear();
      ++num_cleared;
      num_dropped += event->num_dropped;
    }
  }
};

// Returns a page's name, computed from its tokens alone as any listener can.
PageHash name_of(const CacheNamespace& name_space, const Tokens& tokens, int page_tokens) {
  const PageHasher hash;
  PageHash name = root_hash(name_space);
  for (size_t i = 0; i < tokens.size(); i += static_cast<size_t>(page_tokens))
    name = hash(name, std::span(tokens).subspan(i, static_cast<size_t>(page_tokens)));
  return name;
}

class KvEventsTest : public ::testing::Test {
 protected:
  void make(size_t capacity) {
    channel.emplace(capacity);
    cache.emplace(pages, RadixCache::Options{.events = &*channel});
  }
  void insert(const Tokens& tokens, const CacheNamespace& name_space = 0) {
    std::vector<PageId> ids(tokens.size() / 2);
    const int missing = static_cast<int>(ids.size()) - pages.num_free();
    if (missing > 0) cache->evict(missing);
    ASSERT_TRUE(pages.take(ids));
    const Lease lease = cache->insert(name_space, tokens, ids);
    for (size_t end = 2; end <= tokens.size(); end += 2) {
      const Tokens prefix(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(end));
      prefixes.insert_or_assign(name_of(name_space, prefix, 2), std::pair(name_space, prefix));
    }
    cache->check_integrity();
  }
  // Returns the names of the pages that are cached at present.
  std::set<PageHash> cached() const {
    std::set<PageHash> names;
    for (const auto& [name, what] : prefixes)
      if (cache->match_len(what.first, what.second) == static_cast<int>(what.second.size()))
        names.insert(name);
    return names;
  }
  std::set<PageHash> believed() const {
    std::set<PageHash> names;
    for (const auto& [name, parent] : listener.parent_of) names.insert(name);
    return names;
  }

  PageAllocator pages{16, 2};
  std::optional<KvEventChannel> channel;
  std::optional<RadixCache> cache;
  Listener listener;
  std::map<PageHash, std::pair<CacheNamespace, Tokens>> prefixes;
};

Tokens ids(std::initializer_list<int> numbers) {
  Tokens tokens;
  for (const int number : numbers) tokens.push_back(TokenId{number});
  return tokens;
}

// The expected bytes come from Python: sha256(bytes(32) + struct.pack("<2i", 1, 2)).
TEST(PageHashTest, IsSha256OfParentAndTokens) {
  const PageHash hash = name_of(0, ids({1, 2}), 2);
  EXPECT_EQ(hash[0], 0xe7);
  EXPECT_EQ(hash[1], 0xca);
  EXPECT_EQ(hash[31], 0xea);
  EXPECT_NE(name_of(CacheNamespace(1), ids({1, 2}), 2), hash);
  EXPECT_NE(name_of(CacheNamespace(1, 0), ids({1, 2}), 2),
            name_of(CacheNamespace(0, 1), ids({1, 2}), 2));
}

TEST_F(KvEventsTest, NothingIsToldWhileNobodyListens) {
  make(64);
  insert(ids({1, 2, 3, 4}));
  cache->emit_to_listeners();
  EXPECT_FALSE(channel->pop());
}

TEST_F(KvEventsTest, AListenerLearnsWhatIsCachedAndEveryChange) {
  make(64);
  insert(ids({1, 2, 3, 4}));
  channel->listen();
  insert(ids({5, 6}));  // happens before the engine told the new listener what is cached
  cache->emit_to_listeners();
  listener.read(*channel);
  EXPECT_EQ(listener.num_cleared, 1);
  EXPECT_EQ(believed().size(), 3u);
  EXPECT_EQ(believed(), cached());
  insert(ids({1, 2, 7, 8, 9, 10}));
  insert(ids({1, 2, 3, 4}), CacheNamespace(7, 9));
  listener.read(*channel);
  EXPECT_EQ(believed().size(), 7u);
  EXPECT_EQ(believed(), cached());
  const PageHash leaf = name_of(0, ids({1, 2, 7, 8}), 2);
  EXPECT_EQ(listener.parent_of.at(leaf), name_of(0, ids({1, 2}), 2));
  EXPECT_EQ(listener.parent_of.at(name_of(0, ids({1, 2}), 2)), root_hash(0));
  cache->evict(2);
  listener.read(*channel);
  EXPECT_EQ(believed().size(), 5u);
  EXPECT_EQ(believed(), cached());
  EXPECT_EQ(listener.num_cleared, 1);
}

TEST_F(KvEventsTest, AFlushIsOneEvent) {
  make(64);
  channel->listen();
  cache->emit_to_listeners();
  insert(ids({1, 2, 3, 4}));
  listener.read(*channel);
  cache->flush();
  const auto event = channel->pop();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, KvEvent::Kind::cleared);
  EXPECT_FALSE(channel->pop());
}

TEST_F(KvEventsTest, WhenTheQueueIsFullTheListenerIsToldToForget) {
  make(4);
  channel->listen();
  cache->emit_to_listeners();
  insert(ids({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));  // five pages; the queue has room for three events
  insert(ids({20, 21}));
  cache->emit_to_listeners();  // tells nothing, because the reader has not caught up
  listener.read(*channel);
  EXPECT_EQ(listener.num_cleared, 1);
  EXPECT_EQ(believed().size(), 3u);
  cache->emit_to_listeners();
  listener.read(*channel);
  EXPECT_EQ(listener.num_cleared, 2);
  EXPECT_EQ(listener.num_dropped, 3u);
  for (const PageHash& name : believed()) EXPECT_TRUE(cached().contains(name));
}

TEST_F(KvEventsTest, WhateverHappensNothingWrongIsBelieved) {
  for (const size_t capacity : {2u, 5u, 17u, 400u}) {
    SCOPED_TRACE(capacity);
    make(capacity);
    listener = {};
    std::mt19937_64 random(capacity);
    bool listening = false;
    for (int turn = 0; turn < 600; ++turn) {
      Tokens tokens(2 * (1 + random() % 5));
      for (TokenId& token : tokens) token = TokenId{static_cast<int>(random() % 3)};
      insert(tokens, CacheNamespace(random() % 2));
      if (random() % 50 == 0) cache->flush();
      if (random() % 60 == 0)
        (listening = !listening) ? channel->listen() : channel->stop_listening();
      cache->emit_to_listeners();
      cache->check_integrity();
      if (random() % 4 != 0) continue;
      listener.read(*channel);
      cache->emit_to_listeners();
      if (!channel->is_publishing()) continue;
      listener.read(*channel);
      const std::set<PageHash> now = cached(), told = believed();
      ASSERT_TRUE(std::includes(now.begin(), now.end(), told.begin(), told.end())) << turn;
      if (capacity == 400u) {
        ASSERT_EQ(told, now) << turn;
      }
    }
    EXPECT_GT(listener.num_cleared, 2);
    if (capacity == 2u) {
      EXPECT_GT(listener.num_dropped, 0u);
    }
    cache.reset();
  }
}

}  // namespace
}  // namespace hocket
