// Which leaf goes first: a binary heap over the leaves that no lease pins, least recently used on
// top. Invariant: holds exactly the nodes with is_evictable_leaf(), each with its eviction_slot.
// Thread: engine.   After construction nothing allocates: there are never more leaves than pages.
#pragma once

#include <cstddef>
#include <vector>

#include "policy/cache/radix_node.h"

namespace hocket {

class EvictionOrder {
 public:
  explicit EvictionOrder(int num_pages) { heap_.reserve(static_cast<size_t>(num_pages)); }

  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  RadixNode& first() const { return *heap_.front(); }

  // O(log n) each. A node's last_used must not change while it is in.
  void add(RadixNode& node);
  void remove(RadixNode& node);

 private:
  void place(size_t slot, RadixNode* node);
  void sift(size_t slot);

  std::vector<RadixNode*> heap_;
};

}  // namespace hocket
