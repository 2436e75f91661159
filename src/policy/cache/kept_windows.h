// The pages of window layers that the radix tree keeps beside its own pages, for models with
// sliding windows: a page of a node may have one, or has lost it (a tombstone). They are evicted
// one by one, whatever happens to the nodes: first those over which the window of one request slid,
// then those that were in view where a sequence ended or another request went on; of each kind the
// one whose last pin ended the longest ago.
// Private to policy/cache.   Thread: engine.   After construction nothing allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/cache/page_allocator.h"
#include "policy/cache/radix_node.h"

namespace hocket {

// A request's last use of a page. passed: its window slid over the page, and the request went on.
// wanted: the page was in view where its sequence ended, or where a match let it begin.
enum class WindowUse : uint8_t { passed, wanted };

class KeptWindows {
 public:
  explicit KeptWindows(PageAllocator* pages)
      : pages_(pages),
        kept_((pages == nullptr ? 0 : static_cast<size_t>(pages->num_pages())) + 2),
        passed_(static_cast<int>(kept_.size()) - 2),
        wanted_(passed_ + 1) {
    for (const int ends : {passed_, wanted_}) at(ends) = {.before = ends, .after = ends};
  }

  bool enabled() const { return pages_ != nullptr; }
  // Gives a page, which the caller owns, to the node's page that `place` pages precede.
  void keep(RadixNode& node, int place, PageId page, WindowUse use);
  // Says that a page belongs to another node now, at the same place.
  void move(PageId page, RadixNode& node) { at(page).node = &node; }
  // wanted: a match lets another request begin behind the page. passed: the request that computed
  // it goes on.
  void pin(PageId page, WindowUse use);
  // passed: the window of the request slid over the page. wanted: the request ended with the page
  // in view.
  void unpin(PageId page, WindowUse use);
  // Gives a page back to the allocator. Precondition: nothing pins it.
  void drop(PageId page);
  void give_back(PageId page) { pages_->give_back({&page, 1}); }
  // Drops the page that is evicted first. Returns false if everything is pinned.
  bool evict_one();

  int num_leases(PageId page) const { return kept_[static_cast<size_t>(value(page))].num_leases; }
  int num_kept() const { return num_kept_; }
  int num_evictable() const { return num_kept_ - num_pinned_; }
  uint64_t num_evicted_total() const { return num_evicted_; }
  // Returns true if the node's page that `place` pages precede has this page.
  bool is_at(PageId page, const RadixNode& node, int place) const {
    const Kept& kept = kept_[static_cast<size_t>(value(page))];
    return kept.node == &node && kept.place == place;
  }

 private:
  // Pages that nothing pins are in one of two circular lists, the one unpinned first in front. The
  // first and the last entry of a list meet at a sentinel, which is no page.
  struct Kept {
    RadixNode* node = nullptr;  // null: the page is not kept
    int place = 0, num_leases = 0;
    bool wanted = false;  // another request went on from here
    int before = -1, after = -1;
  };
  Kept& at(PageId page) { return kept_[static_cast<size_t>(value(page))]; }
  Kept& at(int index) { return kept_[static_cast<size_t>(index)]; }
  void append(int index, int ends);
  void take_out(int index);

  PageAllocator* pages_;
  std::vector<Kept> kept_;  // [pages + 2]
  int passed_, wanted_;     // the sentinels of the lists
  uint64_t num_evicted_ = 0;
  int num_kept_ = 0, num_pinned_ = 0;
};

}  // namespace hocket
