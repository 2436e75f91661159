#include "policy/cache/eviction.h"

#include "base/check.h"

namespace hocket {
namespace {

bool goes_before(const RadixNode* a, const RadixNode* b) {
  return a->last_used < b->last_used;
}

}  // namespace

void EvictionOrder::add(RadixNode& node) {
  HOCKET_CHECK(node.eviction_slot < 0);
  HOCKET_CHECK(heap_.size() < heap_.capacity());
  heap_.push_back(&node);
  sift(heap_.size() - 1);
}

void EvictionOrder::remove(RadixNode& node) {
  HOCKET_CHECK(node.eviction_slot >= 0);
  const auto slot = static_cast<size_t>(node.eviction_slot);
  HOCKET_CHECK(heap_[slot] == &node);
  node.eviction_slot = -1;
  RadixNode* last = heap_.back();
  heap_.pop_back();
  if (last == &node) return;
  heap_[slot] = last;
  sift(slot);
}

void EvictionOrder::place(size_t slot, RadixNode* node) {
  heap_[slot] = node;
  node->eviction_slot = static_cast<int>(slot);
}

// Moves the node at `slot` up or down to where it belongs.
void EvictionOrder::sift(size_t slot) {
  RadixNode* node = heap_[slot];
  while (slot > 0 && goes_before(node, heap_[(slot - 1) / 2])) {
    place(slot, heap_[(slot - 1) / 2]);
    slot = (slot - 1) / 2;
  }
  for (size_t child; (child = 2 * slot + 1) < heap_.size(); slot = child) {
    if (child + 1 < heap_.size() && goes_before(heap_[child + 1], heap_[child])) ++child;
    if (!goes_before(heap_[child], node)) break;
    place(slot, heap_[child]);
  }
  place(slot, node);
}

}  // namespace hocket
