// The pages of window layers that the radix tree keeps beside its own pages, for models with
// sliding windows. A page of a node may have one, or has lost it (a tombstone). They are evicted
// one by one, whatever happens to the nodes:
//
//   first   those over which the window of one request slid
//   then    those in view where a prompt or a sequence ended, or where another request continued
//
// The page of a kind whose last pin ended the longest ago is evicted first.
//
// Private to policy/cache.   Thread: engine.   After construction nothing allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/cache/page_allocator.h"
#include "policy/cache/radix_node.h"

namespace hocket {

// The position of a page in the window of the request that had it last. passed: the window slid
// over the page, and the request continued. in_window: the page was in view where the prompt or the
// sequence ended, or where a match let it begin.
enum class WindowPosition : uint8_t { passed, in_window };

class CachedWindows {
 public:
  explicit CachedWindows(PageAllocator* pages)
      : pages_(pages),
        cached_((pages == nullptr ? 0 : static_cast<size_t>(pages->num_pages())) + 2),
        out_of_window_(static_cast<int>(cached_.size()) - 2),
        in_window_(out_of_window_ + 1) {
    for (const int sentinel : {out_of_window_, in_window_})
      at(sentinel) = {.before = sentinel, .after = sentinel};
  }

  // Returns the memory of the lists for num_pages.
  static int64_t bytes_for(int64_t num_pages) {
    return num_pages * static_cast<int64_t>(sizeof(CachedPage));
  }

  bool enabled() const { return pages_ != nullptr; }
  // Gives a page, which the caller owns, to the node's page that `page_index` pages precede.
  void insert(RadixNode& node, int page_index, PageId page, WindowPosition position);
  // Says that a page belongs to another node now, at the same index.
  void move(PageId page, RadixNode& node) { at(page).node = &node; }
  // in_window: a match lets another request begin behind the page. passed: the request that
  // computed it continues.
  void pin(PageId page, WindowPosition position);
  // passed: the window of the request slid over the page. in_window: its prompt or its sequence
  // ended with the page in view. This is remembered even while other requests pin the page.
  void unpin(PageId page, WindowPosition position);
  // Gives a page back to the allocator. Precondition: nothing pins it.
  void drop(PageId page);
  void give_back(PageId page) { pages_->give_back({&page, 1}); }
  // Drops the page that is evicted first. Returns false if everything is pinned.
  bool evict_one();

  int num_leases(PageId page) const { return cached_[static_cast<size_t>(value(page))].num_leases; }
  int num_cached() const { return num_cached_; }
  int num_evictable() const { return num_cached_ - num_pinned_; }
  uint64_t num_evicted_total() const { return num_evicted_; }
  // Returns true if the node's page that `page_index` pages precede has this page.
  bool is_at(PageId page, const RadixNode& node, int page_index) const {
    const CachedPage& cached = cached_[static_cast<size_t>(value(page))];
    return cached.node == &node && cached.page_index == page_index;
  }

 private:
  // Pages that nothing pins are in one of two circular lists, the one unpinned first in front. The
  // first and the last entry of a list are linked to a sentinel, which is no page.
  struct CachedPage {
    RadixNode* node = nullptr;  // null: the page is not cached
    int page_index = 0, num_leases = 0;
    bool in_window = false;  // it had this position in the window of some request
    int before = -1, after = -1;
  };
  CachedPage& at(PageId page) { return cached_[static_cast<size_t>(value(page))]; }
  CachedPage& at(int index) { return cached_[static_cast<size_t>(index)]; }
  void append(int index, int sentinel);
  void take_out(int index);

  PageAllocator* pages_;
  std::vector<CachedPage> cached_;  // [pages + 2]
  int out_of_window_, in_window_;   // the sentinels of the lists
  uint64_t num_evicted_ = 0;
  int num_cached_ = 0, num_pinned_ = 0;
};

}  // namespace hocket
