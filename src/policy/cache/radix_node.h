// One node of the radix tree: a run of whole pages; siblings differ in their first page. Owner: its
// parent; the tree owns the root of each namespace.   Thread: engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "base/ids.h"
#include "policy/cache/cache_namespace.h"
#include "policy/cache/page_hash.h"

namespace hocket {

struct RadixNode;

// Total order by the first page. A key may be shorter than a page; it sorts directly before the
// pages that begin with it. The sibling that shares most tokens with a key is therefore the key's
// lower bound or the one before that.
struct FirstPageOrder {
  using is_transparent = void;
  using Tokens = std::span<const TokenId>;
  size_t page_tokens = 1;

  Tokens key(const std::unique_ptr<RadixNode>& node) const;
  static Tokens key(Tokens tokens) { return tokens; }

  bool operator()(const auto& left, const auto& right) const {
    const Tokens a = key(left), b = key(right);
    const int order =
        std::memcmp(a.data(), b.data(), std::min(a.size(), b.size()) * sizeof(TokenId));
    return order != 0 ? order < 0 : a.size() < b.size();
  }
};

struct RadixNode {
  using Children = std::set<std::unique_ptr<RadixNode>, FirstPageOrder>;

  RadixNode(RadixNode* parent_node, int page_tokens)
      : parent(parent_node), children(FirstPageOrder{static_cast<size_t>(page_tokens)}) {}

  RadixNode* parent;            // null: the root of a namespace, which holds no page
  CacheNamespace name_space;    // set in roots only
  std::vector<TokenId> tokens;  // length: pages.size() * page_tokens
  std::vector<PageId> pages;
  // Models with sliding windows: for each page the one of the window layers; kNoPage: dropped.
  // Empty without such layers.
  std::vector<PageId> window_pages;
  // Hashes of the first pages, as far as listeners know them. All pages of a parent are sent
  // before any page of its children.
  std::vector<PageHash> hashes;
  int end_pages = 0;       // pages from the root to the end of this node
  int num_leases = 0;      // leases that end at this node or below it
  int eviction_slot = -1;  // position in the EvictionOrder's heap; -1: the node is not in it
  // Eviction sorts by these values; they are the same for all pages of the node.
  uint64_t created = 0;          // tick at which the pages were inserted
  uint64_t last_used = 0;        // tick of the last match or insert that covered the node
  uint32_t num_uses = 0;         // 1 for the insert, plus 1 for each match
  int32_t priority = INT32_MIN;  // largest priority of the requests that inserted the pages
  uint64_t protected_until = 0;  // `until` of RadixCache::protect; 0: not protected
  // Models with delta nets (cached_states.h).
  int state = -1;                // slot of the state at the end of this node; -1: none is kept
  int num_state_leases = 0;      // leases that pin it
  int state_eviction_slot = -1;  // position in the heap of CachedStates; -1: the node is not in it
  uint64_t state_used_at = 0;    // the largest value of an evicted state when this was used
  int state_saves_pages = 0;     // pages that it saved when it was used
  int num_states_below = 0;      // nodes below this one that have a state
  Children children;

  int num_pages() const { return static_cast<int>(pages.size()); }
  int begin_pages() const { return end_pages - num_pages(); }  // pages from the root to its begin
  // Return the page of the window layers that `page_index` pages from the root precede.
  PageId& window_page(int page_index) {
    return window_pages[static_cast<size_t>(page_index - begin_pages())];
  }
  PageId window_page(int page_index) const {
    return window_pages[static_cast<size_t>(page_index - begin_pages())];
  }
  bool is_root() const { return parent == nullptr; }
  bool is_evictable_leaf() const { return !is_root() && num_leases == 0 && children.empty(); }
};

inline FirstPageOrder::Tokens FirstPageOrder::key(const std::unique_ptr<RadixNode>& node) const {
  return Tokens(node->tokens).first(page_tokens);
}

}  // namespace hocket
