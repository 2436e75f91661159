// The inside of a RadixCache: its nodes and counters, and the functions that change them. Private
// to policy/cache.   Thread: engine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "policy/cache/cached_states.h"
#include "policy/cache/cached_windows.h"
#include "policy/cache/eviction.h"
#include "policy/cache/radix_cache.h"
#include "policy/cache/radix_events.h"
#include "policy/cache/radix_node.h"

namespace hocket {

// The position where a walk from the root ended:
//
//   | whole matching pages .... | node_pages of `node` | partial_len tokens | differs
//                                                      ^ page source_page of `source`
//
// `node` is the root if no whole page matches. `source` is `node` itself or one of its children;
// partial_len < page_tokens, and 0 if no further token matches.
struct RadixPosition {
  RadixNode* node = nullptr;
  int node_pages = 0;
  int num_pages = 0;  // matching whole pages from the root, node_pages included
  RadixNode* source = nullptr;
  int source_page = 0;
  int partial_len = 0;
};

struct RadixCache::Tree {
  using Tokens = std::span<const TokenId>;

  Tree(PageAllocator& allocator, Options tree_options)
      : pages(allocator),
        options(tree_options),
        states(tree_options.states, allocator.page_tokens()),
        windows(tree_options.windows),
        evictable_leaves(tree_options.eviction, allocator.num_pages()),
        events(tree_options.events, allocator.page_tokens()) {}

  void limit(RadixPosition& position) const;
  void limit_to_state(RadixPosition& position) const;
  void limit_to_window(RadixPosition& position) const;
  int first_seen(int num_tokens) const {
    return first_seen_page(num_tokens, options.window, pages.page_tokens());
  }
  RadixPosition walk(const CacheNamespace& name_space, Tokens tokens) const;
  std::vector<PageId> pages_to(const RadixNode* end, int num_pages) const;
  static std::vector<PageId> window_pages_in(const RadixNode* node, int begin, int end);
  const RadixNode* child_that_begins_with(const RadixNode& node, Tokens key) const;
  void look_beside(const RadixNode& node, Tokens key, RadixPosition& position) const;
  void set_protected_until(RadixNode& node, uint64_t until);
  RadixNode* split(RadixNode& node, int num_front_pages);
  RadixNode& root(const CacheNamespace& name_space);
  RadixNode& append_leaf(RadixNode& parent, Tokens tokens, std::span<const PageId> new_pages);
  void adopt(RadixNode& node, int num_pages, std::span<PageId> callers);
  void adopt_windows(RadixNode& node, int num_pages, std::span<PageId> callers,
                     WindowPosition position);
  static void release_unused(RadixNode& node);
  void pin(RadixNode& node);
  void unpin(RadixNode& node);
  void trim_leaf(RadixNode& leaf, int num_pages);
  void drop_leaf(RadixNode& leaf);
  void check_integrity() const;
  void check_windows() const;

  size_t page_tokens() const { return static_cast<size_t>(pages.page_tokens()); }

  PageAllocator& pages;
  Options options;
  CachedStates states;
  CachedWindows windows;
  RadixRoots roots;
  EvictionOrder evictable_leaves;
  RadixEvents events;
  uint64_t tick = 0;
  uint64_t num_evicted = 0;
  int num_cached = 0, num_evictable = 0;
  int num_leases = 0;
};

}  // namespace hocket
