// The memory of a scheduler's requests, and the prefix cache that they share it with: pages, in
// models with sliding windows also pages of window layers, in models with delta nets also slots of
// states. Each of them has a class of its own, which may be used directly; the functions here are
// about all of them.
//
//   admitted      begin()
//   each step     take_pages() before it, cache_pages() after it while the prompt is computed
//   at its end    keep_for_next_turn() if it ended well, then free()
//
// Requests must be destroyed before it, since their leases pin the cache. Thread: engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "policy/cache/page_allocator.h"
#include "policy/cache/radix_cache.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/request.h"
#include "policy/scheduler/request_windows.h"
#include "policy/scheduler/scheduler_options.h"
#include "policy/scheduler/sessions.h"
#include "policy/scheduler/state_slots.h"

namespace hocket {

class KvMemory {
 public:
  // `options` outlives it.
  explicit KvMemory(const SchedulerOptions& options);

  // The cache is destroyed first, because it holds pages and slots of the others.
  PageAllocator pages;
  RequestWindows windows;
  StateSlots states;
  RadixCache cache;
  Sessions sessions;

  int page_tokens() const { return pages.page_tokens(); }
  // Returns how many pages are free, or would be after an eviction.
  int num_available_pages() const { return pages.num_free() + cache.num_evictable_pages(); }
  // Returns how many pages can be taken of every kind.
  int num_takeable_pages() const {
    return std::min(num_available_pages(), windows.num_available());
  }
  int64_t available_tokens() const { return int64_t{num_available_pages()} * page_tokens(); }
  // Changes when the cache may have changed.
  uint64_t cache_generation() const { return cache_generation_; }

  // Reserves the token and page lists at the largest size that the request can reach. Returns false
  // if memory is short; the request then fails with that error.
  bool reserve_lists(Request& request) const;
  // Gives what was matched to a request that begins; takes the leases out of the match.
  void begin(Request& request, PrefixMatch& match);
  // Takes the pages that the request lacks for its first `end` tokens. Precondition: they can be
  // taken.
  void take_pages(Request& request, int end);
  void take_pages(const Slice& slice) { take_pages(*slice.request, slice.begin + slice.len); }
  // Gives the whole pages of the first `num_tokens` to the tree, so that running and later
  // requests can share them.
  void cache_pages(Request& request, int num_tokens);
  // Call when the request has ended: if it ended well, the tree keeps its pages, its last state and
  // its session, because the next turn of a conversation begins with them.
  void keep_for_next_turn(Request& request, TimePoint now);
  void free(Request& request);

  // Scheduler::restore(), restore_state() and restore_window(). restore() returns how many pages
  // the tree got; nullopt: it lacks more than `max_pages`, or there is no room.
  std::optional<int> restore(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                             int max_pages,
                             const std::function<void(std::span<const PageId>)>& fill);
  bool restore_state(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                     const std::function<void(int slot)>& fill);
  bool restore_window(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                      const std::function<void(int index, PageId page)>& fill);
  // Evicts all that no request uses, and ends all sessions.
  void flush();

 private:
  const SchedulerOptions& options_;
  uint64_t cache_generation_ = 0;
};

}  // namespace hocket
