// Compares the tree with a plain model that knows only pages, for every policy and page size.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "policy/cache/radix_cache.h"

namespace hocket {
namespace {

using Tokens = std::vector<TokenId>;

// The model: one entry for each page, named by all tokens up to the page's end.
class PlainCache {
 public:
  struct Page {
    uint64_t created = 0, last_used = 0, num_uses = 0;
    int priority = INT32_MIN, num_leases = 0;
  };
  PlainCache(EvictionPolicy policy, int page_tokens)
      : policy_(policy), page_tokens_(static_cast<size_t>(page_tokens)) {}

  const std::map<Tokens, Page>& pages() const { return pages_; }
  bool has(const Tokens& prefix) const { return pages_.contains(prefix); }

  // Returns the length of the longest prefix of `tokens` that any page's name begins with.
  int match_len(const Tokens& tokens) const {
    size_t best = 0;
    for (const auto& [name, page] : pages_) {
      size_t common = 0;
      while (common < std::min(name.size(), tokens.size()) && name[common] == tokens[common])
        ++common;
      best = std::max(best, common);
    }
    return static_cast<int>(best);
  }
  // Counts one use of every page of `name`: all tokens up to the end of the last used page.
  void use(const Tokens& name) {
    ++tick_;
    for_path(name, [&](Page& page) { page.last_used = tick_, ++page.num_uses; });
  }
  void insert(const Tokens& name, int priority) {
    const uint64_t created = ++tick_;
    ++tick_;
    for_path(name, [&](Page& page) {
      if (page.num_uses == 0) page.created = created, page.num_uses = 1;
      page.last_used = tick_;
      page.priority = std::max(page.priority, priority);
    });
  }
  void pin(const Tokens& name, int change) {
    for_path(name, [&](Page& page) { page.num_leases += change; });
  }
  void evict(int num_pages) {
    for (; num_pages > 0; --num_pages) {
      const Tokens* first = nullptr;
      for (const auto& [name, page] : pages_) {
        // Names that begin with `name` sort right after it.
        const auto next = pages_.upper_bound(name);
        const bool leaf = next == pages_.end() ||
                          !std::equal(name.begin(), name.end(), next->first.begin(),
                                      next->first.begin() + static_cast<ptrdiff_t>(std::min(
                                                                name.size(), next->first.size())));
        if (!leaf || page.num_leases > 0) continue;
        if (first == nullptr || rank(page) < rank(pages_.at(*first))) first = &name;
      }
      if (first == nullptr) return;
      pages_.erase(Tokens(*first));
    }
  }

 private:
  std::pair<int64_t, int64_t> rank(const Page& page) const {
    const auto used = static_cast<int64_t>(page.last_used);
    const auto created = static_cast<int64_t>(page.created);
    const auto uses = static_cast<int64_t>(page.num_uses);
    switch (policy_) {
      case EvictionPolicy::lru:
        return {0, used};
      case EvictionPolicy::mru:
        return {0, -used};
      case EvictionPolicy::fifo:
        return {0, created};
      case EvictionPolicy::filo:
        return {0, -created};
      case EvictionPolicy::lfu:
        return {uses, used};
      case EvictionPolicy::slru:
        return {uses >= 2, used};
      case EvictionPolicy::priority:
        return {page.priority, used};
    }
    return {};
  }
  template <class Body>
  void for_path(const Tokens& name, Body body) {
    for (size_t end = page_tokens_; end <= name.size(); end += page_tokens_)
      body(pages_[Tokens(name.begin(), name.begin() + static_cast<ptrdiff_t>(end))]);
  }

  EvictionPolicy policy_;
  size_t page_tokens_;
  uint64_t tick_ = 0;
  std::map<Tokens, Page> pages_;
};

// Plays the same random traffic on the cache and on the model.
class Twins {
 public:
  Twins(EvictionPolicy policy, int page_tokens, uint64_t seed)
      : random_(seed),
        page_tokens_(page_tokens),
        pages_(kPages, page_tokens),
        cache_(pages_, {.eviction = policy}),
        plain_(policy, page_tokens) {}

  void turn() {
    if (pick(3) == 0) {
      match();
    } else {
      insert();
    }
    if (!held_.empty() && pick(2) == 0) release(pick(static_cast<int>(held_.size())));
    cache_.check_integrity();
    ASSERT_EQ(pages_.num_free() + cache_.num_cached_pages(), pages_.num_pages());
    ASSERT_EQ(cache_.num_cached_pages(), static_cast<int>(plain_.pages().size()));
    for (const auto& [name, page] : plain_.pages())
      ASSERT_EQ(cache_.match_len(0, name), static_cast<int>(name.size()));
  }
  void finish() {
    while (!held_.empty()) release(0);
    cache_.flush();
    ASSERT_EQ(pages_.num_free(), pages_.num_pages());
  }

 private:
  static constexpr int kPages = 24;
  struct LeasedPrefix {
    Lease lease;
    Tokens name;
  };

  int pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  // Makes a few different pages that differ in their first or last token; the last page may be cut.
  Tokens make() {
    Tokens tokens;
    for (int page = 1 + pick(6); page > 0; --page) {
      const int differs_at = pick(2) == 0 ? 0 : page_tokens_ - 1, with = pick(3);
      for (int i = 0; i < page_tokens_; ++i) tokens.push_back(TokenId{i == differs_at ? with : 9});
    }
    tokens.resize(tokens.size() - static_cast<size_t>(pick(page_tokens_)));
    return tokens;
  }
  size_t in_pages(size_t num_tokens) const {
    return num_tokens / static_cast<size_t>(page_tokens_);
  }
  void release(int index) {
    plain_.pin(held_[static_cast<size_t>(index)].name, -1);
    held_.erase(held_.begin() + index);
  }
  void hold(Lease lease, const Tokens& tokens) {
    Tokens name(tokens.begin(), tokens.begin() + lease.len());
    plain_.pin(name, 1);
    held_.push_back({std::move(lease), std::move(name)});
  }

  void match() {
    const Tokens tokens = make();
    ASSERT_EQ(cache_.match_len(0, tokens), plain_.match_len(tokens));
    PrefixMatch found = cache_.match(0, tokens);
    ASSERT_EQ(found.len(page_tokens_), plain_.match_len(tokens));
    if (!found.lease) return;
    // Tokens of the pinned path: whole pages, and the page that is copied from.
    Tokens name = tokens;
    name.resize(found.pages.size() * static_cast<size_t>(page_tokens_));
    if (found.partial_len > 0) name = holds_.at(found.partial_source);
    ASSERT_TRUE(plain_.has(name));
    for (size_t i = 0; i < found.pages.size(); ++i)
      ASSERT_TRUE(std::equal(holds_.at(found.pages[i]).begin(), holds_.at(found.pages[i]).end(),
                             tokens.begin()));
    plain_.use(name);
    if (pick(2) == 0) hold(std::move(found.lease), name);
  }
  void insert() {
    Tokens tokens = make();
    tokens.resize(in_pages(tokens.size()) * static_cast<size_t>(page_tokens_));
    if (tokens.empty()) return;
    std::vector<PageId> ids(in_pages(tokens.size()));
    const int missing = static_cast<int>(ids.size()) - pages_.num_free();
    if (missing > 0) {
      cache_.evict(missing);
      plain_.evict(missing);
    }
    if (!pages_.take(ids)) return;
    for (size_t i = 0; i < ids.size(); ++i)
      holds_[ids[i]].assign(tokens.begin(),
                            tokens.begin() + static_cast<ptrdiff_t>(i + 1) * page_tokens_);
    const int priority = pick(5) - 2;
    Lease lease = cache_.insert(0, tokens, ids, priority);
    plain_.insert(tokens, priority);
    if (pick(3) == 0) hold(std::move(lease), tokens);
  }

  std::mt19937_64 random_;
  int page_tokens_;
  PageAllocator pages_;
  RadixCache cache_;
  PlainCache plain_;
  std::map<PageId, Tokens> holds_;  // by page: all tokens up to its end
  std::vector<LeasedPrefix> held_;
};

TEST(RadixOracleTest, EveryPolicyAndPageSizeEvictsWhatAPlainModelEvicts) {
  for (int policy = 0; policy < kNumEvictionPolicies; ++policy) {
    for (const int page_tokens : {1, 2, 4, 8, 16, 32, 64, 128}) {
      for (uint64_t seed = 0; seed < 3; ++seed) {
        Twins twins(static_cast<EvictionPolicy>(policy), page_tokens, seed);
        for (int turn = 0; turn < 60; ++turn) {
          twins.turn();
          ASSERT_FALSE(::testing::Test::HasFatalFailure())
              << "policy " << policy << " page " << page_tokens << " seed " << seed << " turn "
              << turn;
        }
        twins.finish();
      }
    }
  }
}

}  // namespace
}  // namespace hocket
