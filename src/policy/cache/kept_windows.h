// The pages of window layers that the radix tree keeps beside its own pages, for models with
// sliding windows: a page of a node may have one, or has lost it (a tombstone). They are evicted
// one by one, the one that was pinned last the longest ago first, whatever happens to the nodes.
// Private to policy/cache.   Thread: engine.   After construction nothing allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/cache/page_allocator.h"
#include "policy/cache/radix_node.h"

namespace hocket {

class KeptWindows {
 public:
  explicit KeptWindows(PageAllocator* pages)
      : pages_(pages),
        kept_(pages == nullptr ? 1 : static_cast<size_t>(pages->num_pages()) + 1),
        ends_(static_cast<int>(kept_.size()) - 1) {
    kept_.back() = {.before = ends_, .after = ends_};
  }

  bool enabled() const { return pages_ != nullptr; }
  // Gives a page, which the caller owns, to the node's page that `place` pages precede.
  void keep(RadixNode& node, int place, PageId page);
  // Says that a page belongs to another node now, at the same place.
  void move(PageId page, RadixNode& node) { at(page).node = &node; }
  void pin(PageId page);
  void unpin(PageId page);
  // Gives a page back to the allocator. Pre: nothing pins it.
  void drop(PageId page);
  void give_back(PageId page) { pages_->give_back({&page, 1}); }
  // Drops the page that was pinned last the longest ago. Returns false if everything is pinned.
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
  // Pages that nothing pins are a ring, in the order in which they became so; its ends meet at
  // kept_.back(), which is no page.
  struct Kept {
    RadixNode* node = nullptr;  // null: the page is not kept
    int place = 0, num_leases = 0;
    int before = -1, after = -1;
  };
  Kept& at(PageId page) { return kept_[static_cast<size_t>(value(page))]; }
  Kept& at(int index) { return kept_[static_cast<size_t>(index)]; }
  void append(int index);
  void take_out(int index);

  PageAllocator* pages_;
  std::vector<Kept> kept_;  // [pages + 1]
  int ends_;                // index of the last
  uint64_t num_evicted_ = 0;
  int num_kept_ = 0, num_pinned_ = 0;
};

}  // namespace hocket
