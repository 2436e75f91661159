// Computed prefixes, remembered as a radix tree over whole pages and shared by running and coming
// requests.
//
//   tokens   |-------- page --------|-------- page --------|---- partial ----|
//   tree      one or more pages a node, children told apart by their first page
//
// A node is evictable when no lease covers it. Leases, not locks: a move-only Lease pins a path
// while it lives. Namespaces (cache_salt, adapter id) never share nodes.
// Thread: engine.   Source: docs/contracts/cache.md.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "policy/cache/cache_namespace.h"
#include "policy/cache/eviction.h"
#include "policy/cache/kv_events.h"
#include "policy/cache/page_allocator.h"

namespace hocket {

class RadixCache;
struct RadixNode;

// Pins the path from the root to one node. Default: pins nothing. Must not outlive its cache.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

  // Tokens covered: a multiple of the page size.
  int len() const;
  explicit operator bool() const { return node_ != nullptr; }

 private:
  friend class RadixCache;
  Lease(RadixCache* cache, RadixNode* node);
  RadixCache* cache_ = nullptr;
  RadixNode* node_ = nullptr;
};

struct PrefixMatch {
  Lease lease;                // pins `pages`, and the page behind partial_source too
  std::vector<PageId> pages;  // whole pages of the match, in order; lease-owned, read only
  // The next page holds partial_len more matching tokens: copy them (copy on write).
  PageId partial_source = kNoPage;
  int partial_len = 0;
  int len(int page_tokens) const {
    return static_cast<int>(pages.size()) * page_tokens + partial_len;
  }
};

class RadixCache {
 public:
  struct Options {
    bool enabled = true;  // off: matches nothing, keeps nothing
    EvictionPolicy eviction = EvictionPolicy::lru;
    KvEventChannel* events = nullptr;  // null: nobody will listen; outlives the cache
  };
  RadixCache(PageAllocator& pages, Options options);
  ~RadixCache();

  // The longest cached prefix of `tokens`, exact to the token, pinned. Splits nodes where needed.
  // Marks the path as used now. Callers pass at most prompt_len - 1 tokens, since one token must
  // always be computed.
  PrefixMatch match(const CacheNamespace& name_space, std::span<const TokenId> tokens);
  // Length of the match without pinning, splitting or touching; for ordering the waiting queue.
  int match_len(const CacheNamespace& name_space, std::span<const TokenId> tokens) const;

  // Hands computed whole pages over to the tree. tokens.size() == pages.size() * page_tokens.
  // Pages whose tokens the tree already has stay the caller's duplicates: they are given back to
  // the allocator, except those that already are the tree's own. Replaces `pages` by the tree's ids
  // and returns a lease on the whole range. The whole path has `priority` at least, from now on.
  Lease insert(const CacheNamespace& name_space, std::span<const TokenId> tokens,
               std::span<PageId> pages, int priority = 0);

  // Frees at least `num_pages` pages if that many are evictable, leaves in the order of the
  // eviction policy; returns how many.
  int evict(int num_pages);
  // Evicts all that no lease pins.
  int flush();
  // Tells new listeners, and those that have caught up, all there is. Once a step; cheap when there
  // are none.
  void tell_listeners();

  int num_cached_pages() const;     // held by the tree
  int num_evictable_pages() const;  // of those, pinned by no lease
  uint64_t num_evicted_total() const;

  // Recounts the whole tree; a bug if any counter disagrees. Called when idle.
  void check_integrity() const;

 private:
  friend class Lease;
  struct Tree;
  std::unique_ptr<Tree> tree_;
};

}  // namespace hocket
