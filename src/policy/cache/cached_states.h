// The states that the radix tree keeps for models with delta nets: a node may have one, of the
// sequence from the root to the node's end. The state with the lowest value is evicted first.
// Values follow the GreedyDual rule: when a state is used, its value becomes the number of tokens
// that would have to be computed again without it, plus the largest value of a state that was
// evicted so far. So a state that is not used has a low value after a while. When the next state
// above is evicted, the value of the last state of a sequence rises, since the next turn needs it;
// that of a state with others below it does not, since few requests end there. States of protected
// nodes (RadixCache::protect) are evicted after all others, the smallest `until` first. Private to
// policy/cache.
// Thread: engine. After construction nothing allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/cache/eviction.h"
#include "policy/cache/radix_node.h"
#include "policy/cache/slot_allocator.h"

namespace hocket {

class CachedStates {
 public:
  CachedStates(SlotAllocator* slots, int page_tokens);

  bool enabled() const { return slots_ != nullptr; }
  // Gives the slot, which the caller owns, to a node without a state.
  void insert(RadixNode& node, int slot);
  // Raises the value of a node's state, because it was used.
  void use(RadixNode& node);
  void pin(RadixNode& node);
  void unpin(RadixNode& node);
  // Call when RadixNode::protected_until has changed.
  void reorder(RadixNode& node);
  // Returns the slot of a node's state to the allocator. Precondition: nothing pins it.
  void drop(RadixNode& node);
  // Drops the state with the lowest value. Returns false if there is none that nothing pins.
  bool evict_one();

  int num_cached() const { return num_cached_; }
  int num_evictable() const { return static_cast<int>(order_.size()); }
  uint64_t num_evicted_total() const { return num_evicted_; }
  // Returns the node whose state is in a slot; null: none.
  const RadixNode* node_of(int slot) const { return nodes_[static_cast<size_t>(slot)]; }

 private:
  NodeHeap::Entry entry_of(RadixNode& node) const;
  void count(RadixNode& node, int change);

  SlotAllocator* slots_;
  uint64_t page_tokens_;
  std::vector<RadixNode*> nodes_;  // [slots] the node whose state is there; null: none
  NodeHeap order_;                 // by value, those that nothing pins
  uint64_t value_of_evicted_ = 0, num_evicted_ = 0;
  int num_cached_ = 0;
};

}  // namespace hocket
