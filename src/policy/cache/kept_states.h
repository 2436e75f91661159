// The states that the radix tree keeps for models with delta nets: a node may have one, of the
// sequence from the root to the node's end. A state that is worth least is evicted first: its worth
// is the tokens that would have to be computed again without it, raised by the worth of those that
// were evicted before its last use, so that old states give way. If the state above goes, the last
// one of a sequence is worth more from then on, since the next turn needs it; one with others below
// it is not, since few requests end there. States of kept nodes go behind all others, the shortest
// kept first. Private to policy/cache.
// Thread: engine.   After construction nothing allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/cache/eviction.h"
#include "policy/cache/radix_node.h"
#include "policy/cache/slot_allocator.h"

namespace hocket {

class KeptStates {
 public:
  KeptStates(SlotAllocator* slots, int page_tokens);

  bool enabled() const { return slots_ != nullptr; }
  // Gives the slot, which the caller owns, to a node without a state.
  void keep(RadixNode& node, int slot);
  // Raises the worth of a node's state, because it was used.
  void use(RadixNode& node);
  void pin(RadixNode& node);
  void unpin(RadixNode& node);
  // Call when RadixNode::kept_until has changed.
  void reorder(RadixNode& node);
  // Gives the slot of a node's state back to the allocator. Precondition: nothing pins it.
  void drop(RadixNode& node);
  // Drops the state that is worth least. Returns false if there is none that nothing pins.
  bool evict_one();

  int num_kept() const { return num_kept_; }
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
  NodeHeap order_;                 // by worth, those that nothing pins
  uint64_t worth_of_evicted_ = 0, num_evicted_ = 0;
  int num_kept_ = 0;
};

}  // namespace hocket
