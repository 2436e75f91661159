// The prefix cache: computed prefixes in a radix tree over whole pages, shared by running and
// later requests.
//
//   tokens   |-------- page --------|-------- page --------|---- partial ----|
//   tree      a node holds one or more pages; siblings differ in their first page
//
// Pages are pinned by leases, not locks: a move-only Lease pins the path to its node while it
// lives, and a node without a lease on it or below it may be evicted. Namespaces never share nodes.
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
#include "policy/cache/slot_allocator.h"

namespace hocket {

class RadixCache;
struct RadixNode;
enum class WindowPosition : uint8_t;

// Returns how many tokens at the beginning are the same in both.
size_t common_len(std::span<const TokenId> a, std::span<const TokenId> b);

// Pins the path from the root to one node; a default lease pins nothing. Must not outlive its
// cache.
class Lease {
 public:
  Lease() = default;
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease&& other) noexcept;
  ~Lease();

  // Returns the number of tokens from the root to the pinned node's end, a multiple of the page
  // size.
  int len() const;
  explicit operator bool() const { return node_ != nullptr; }

 private:
  friend class RadixCache;
  friend class StateLease;
  Lease(RadixCache* cache, RadixNode* node);
  RadixCache* cache_ = nullptr;
  RadixNode* node_ = nullptr;
};

// Pins the state of a node, and the path to it; a default lease pins nothing. Must not outlive its
// cache.
class StateLease {
 public:
  StateLease() = default;
  StateLease(StateLease&& other) noexcept;
  StateLease& operator=(StateLease&& other) noexcept;
  ~StateLease();

  // Returns the tokens that the state stands for, and its slot.
  int len() const { return path_.len(); }
  int slot() const;
  explicit operator bool() const { return static_cast<bool>(path_); }

 private:
  friend class RadixCache;
  explicit StateLease(Lease path);
  Lease path_;
};

// Pins a run of pages of window layers. The lease of the path they belong to must live as long.
class WindowLease {
 public:
  WindowLease() = default;
  WindowLease(WindowLease&& other) noexcept;
  WindowLease& operator=(WindowLease&& other) noexcept;
  ~WindowLease();

  // Pinned are pages [begin(), end()) from the root.
  int begin() const { return begin_; }
  int end() const { return begin_ + static_cast<int>(pages_.size()); }
  // Unpins the pages before an index: their request continued and sees them no more.
  void release_before(int page_index);
  // Returns how many of the pages nothing else pins.
  int num_sole_pages() const;

 private:
  friend class RadixCache;
  WindowLease(RadixCache* cache, int begin, std::span<const PageId> pages, WindowPosition position);
  RadixCache* cache_ = nullptr;
  int begin_ = 0;
  std::vector<PageId> pages_;
};

struct PrefixMatch {
  Lease lease;                // pins `pages` and the page partial_source
  std::vector<PageId> pages;  // whole pages of the match, in order; read only while leased
  // The page behind `pages` holds partial_len more matching tokens; the caller copies them into a
  // page of its own (copy on write).
  PageId partial_source = kNoPage;
  int partial_len = 0;
  // The tokens whose pages were found, whether or not a model can continue behind all of them.
  int longest_len = 0;
  // In models with delta nets the match ends where a state is cached, which this pins, and no page
  // is matched in part.
  StateLease state;
  // In models with sliding windows the match ends where the pages that the next token sees are
  // kept. window_pages has as many pages as `pages`; those before window.begin() are kNoPage.
  // `window` pins the others, and window_partial_source, which is copied like partial_source.
  std::vector<PageId> window_pages;
  PageId window_partial_source = kNoPage;
  WindowLease window;
  int len(int page_tokens) const {
    return static_cast<int>(pages.size()) * page_tokens + partial_len;
  }
};

class RadixCache {
 public:
  struct Options {
    bool enabled = true;  // false: match() finds nothing and insert() keeps nothing
    EvictionPolicy eviction = EvictionPolicy::lru;
    KvEventChannel* events = nullptr;  // null: no events; otherwise it outlives the cache
    // The slots of states, for models with delta nets; they outlive the cache.
    SlotAllocator* states = nullptr;
    // Models with window layers: their pages, of the same page_tokens, which outlive the cache, and
    // what such a layer sees. No model has both states and windows.
    PageAllocator* windows = nullptr;
    VisibleKeys window;
  };
  RadixCache(PageAllocator& pages, Options options);
  ~RadixCache();

  // Finds and pins the longest cached prefix of `tokens`, exact to the token, and marks its path as
  // used. Splits a node if the match ends inside it. Callers pass at most prompt_len - 1 tokens,
  // since the last prompt token must always be computed.
  PrefixMatch match(const CacheNamespace& name_space, std::span<const TokenId> tokens);
  // Returns the length of the match in tokens and changes nothing; the waiting queue sorts by it.
  int match_len(const CacheNamespace& name_space, std::span<const TokenId> tokens) const;

  // Finds the tokens with which cached sequences continue behind the tokens of `path` and `rest`,
  // and writes them to `out`; of several sequences, those of the one used last. Returns the number
  // of tokens, 0 if there are none or `rest` has more than kMaxWalked. Changes and allocates
  // nothing. An empty path begins at the root.
  static constexpr size_t kMaxWalked = 4096;
  size_t continuation(const CacheNamespace& name_space, const Lease& path,
                      std::span<const TokenId> rest, std::span<TokenId> out) const;

  // Gives computed whole pages to the tree. tokens.size() == pages.size() * page_tokens. Where
  // the tree already has the same tokens in another page, the caller's page is a duplicate and is
  // returned to the allocator. On return `pages` holds the tree's ids, and the lease covers the
  // whole range. Every node of the path gets at least `priority`. window_pages: the same for the
  // pages of window layers; kNoPage where the caller has none. The caller pins them before it
  // evicts any.
  Lease insert(const CacheNamespace& name_space, std::span<const TokenId> tokens,
               std::span<PageId> pages, int priority = 0, std::span<PageId> window_pages = {});
  // Returns how many of the whole pages of `tokens` the tree has, whether or not a model can
  // continue behind them.
  int num_pages_in_tree(const CacheNamespace& name_space, std::span<const TokenId> tokens) const;
  // Returns these pages, in order, and the slot of the state that is kept behind the last of
  // `tokens`, a number of whole pages; -1: none is. Valid until the tree changes.
  std::vector<PageId> pages_in_tree(const CacheNamespace& name_space,
                                    std::span<const TokenId> tokens) const;
  int state_in_tree(const CacheNamespace& name_space, std::span<const TokenId> tokens) const;
  // Returns the pages of window layers that the token behind `tokens`, a number of whole pages,
  // sees, in order; kNoPage where one was dropped. Empty if the tree lacks one of the pages of
  // `tokens`. Valid until the tree changes.
  std::vector<PageId> window_in_tree(const CacheNamespace& name_space,
                                     std::span<const TokenId> tokens) const;
  // Returns the first of the tree's pages of `tokens`, from page `begin` on, whose page of window
  // layers was dropped; if none was, the number of the tree's pages of `tokens`.
  int first_dropped_window(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                           int begin) const;
  // Pins the path of `tokens`, a number of whole pages that the tree has. No tokens: pins nothing.
  Lease pin(const CacheNamespace& name_space, std::span<const TokenId> tokens);
  // Adds pages that were read from a store or a peer: the last ones of `tokens`, whose other pages
  // the tree has. Precondition: the tree has none of `pages`. It gets no pages of window layers.
  void append_restored(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                       std::span<const PageId> pages);
  // Adds pages of window layers that were read from a store or a peer: those that the token behind
  // the path sees, in order; kNoPage where the tree has one.
  void fill_window(const Lease& path, std::span<const PageId> pages);
  // Pins the tree's pages of window layers, the first of which is page `begin` from the root.
  WindowLease pin_window(int begin, std::span<const PageId> pages);
  // Frees `num_pages` pages of window layers, or all evictable ones if those are fewer.
  void evict_window(int num_pages);

  // Keeps the state of the first `len` tokens of the lease's path, a multiple of the page size; the
  // caller owned its slot. If the tree has that state already, the caller's slot is freed and the
  // tree's is pinned: both hold the same bits.
  StateLease cache_state(const Lease& path, int len, int slot);
  // Returns the slot of the state with the lowest value to the allocator. Returns false if there
  // is none that nothing pins.
  bool evict_state();

  // Protected pages and states are evicted after all others, the smallest `until` (> 0) first;
  // nothing is pinned. unprotect() with the same tokens and an `until` at least as large ends that.
  // It also ends the protection of shared prefixes with a smaller `until`: the caller protects
  // these again. `tokens` are whole pages.
  void protect(const CacheNamespace& name_space, std::span<const TokenId> tokens, uint64_t until);
  void unprotect(const CacheNamespace& name_space, std::span<const TokenId> tokens, uint64_t until);

  // Frees `num_pages` pages, or all evictable ones if those are fewer, leaves in the order of the
  // eviction policy. Returns the number of freed pages.
  int evict(int num_pages);
  // Evicts every page that no lease pins; returns how many.
  int flush();
  // Sends the whole tree to listeners that have just begun or have caught up. Called once a step;
  // it costs little when there are none.
  void emit_to_listeners();

  int num_cached_pages() const;     // pages in the tree
  int num_evictable_pages() const;  // those of them that no lease pins
  uint64_t num_evicted_total() const;
  int num_states() const;            // states in the tree
  int num_evictable_states() const;  // those of them that nothing pins
  uint64_t num_evicted_states_total() const;
  // The same for pages of window layers.
  int num_window_pages() const;
  int num_evictable_window_pages() const;
  uint64_t num_evicted_window_pages_total() const;

  // Recounts the whole tree; a counter that disagrees is a bug. Called when idle.
  void check_integrity() const;

 private:
  friend class Lease;
  friend class StateLease;
  friend class WindowLease;
  void pin_match(PrefixMatch& match);
  struct Tree;
  std::unique_ptr<Tree> tree_;
};

}  // namespace hocket
