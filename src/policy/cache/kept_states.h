// The states that the radix tree keeps for models with delta nets: a node may have one, of the
// sequence from the root to the node's end. A state that is worth least is evicted first: its worth
// is the tokens that would have to be computed again without it, raised by the worth of those that
// were evicted before its last use, so that old states give way. States of kept nodes go behind all
// others, the shortest kept first. Private to policy/cache.
// Thread: engine.   After construction nothing allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "policy/cache/radix_node.h"
#include "policy/cache/slot_allocator.h"

namespace hocket {

class KeptStates {
 public:
  explicit KeptStates(SlotAllocator* slots)
      : slots_(slots),
        nodes_(slots == nullptr ? 0 : static_cast<size_t>(slots->num_slots()), nullptr) {}

  bool enabled() const { return slots_ != nullptr; }
  // Gives the slot, which the caller owns, to a node without a state.
  void keep(RadixNode& node, int slot, int page_tokens);
  // Raises the worth of a node's state, because it was used.
  void use(RadixNode& node, int page_tokens);
  void pin(RadixNode& node);
  void unpin(RadixNode& node);
  // Gives the slot of a node's state back to the allocator. Precondition: nothing pins it.
  void drop(RadixNode& node);
  // Drops the state that is worth least. Returns false if there is none that nothing pins.
  bool evict_one();

  int num_kept() const { return num_kept_; }
  int num_evictable() const { return num_kept_ - num_pinned_; }
  uint64_t num_evicted_total() const { return num_evicted_; }
  // Returns the node whose state is in a slot; null: none.
  const RadixNode* node_of(int slot) const { return nodes_[static_cast<size_t>(slot)]; }

 private:
  SlotAllocator* slots_;
  std::vector<RadixNode*> nodes_;  // [slots] the node whose state is there; null: none
  uint64_t worth_of_evicted_ = 0, num_evicted_ = 0;
  int num_kept_ = 0, num_pinned_ = 0;
};

}  // namespace hocket
