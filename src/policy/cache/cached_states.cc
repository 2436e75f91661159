#include "policy/cache/cached_states.h"

#include <algorithm>

#include "base/check.h"

namespace hocket {
namespace {

// Returns the pages behind the last state above the node, which its own state saves computing.
int pages_saved(const RadixNode& node) {
  const RadixNode* above = node.parent;
  while (!above->is_root() && above->state < 0) above = above->parent;
  return node.end_pages - above->end_pages;
}

}  // namespace

CachedStates::CachedStates(SlotAllocator* slots, int page_tokens)
    : slots_(slots),
      page_tokens_(static_cast<uint64_t>(page_tokens)),
      nodes_(slots == nullptr ? 0 : static_cast<size_t>(slots->num_slots()), nullptr),
      order_(&RadixNode::state_eviction_slot, static_cast<int>(nodes_.size())) {}

NodeHeap::Entry CachedStates::entry_of(RadixNode& node) const {
  const int pages = node.num_states_below == 0 ? pages_saved(node) : node.state_saves_pages;
  const uint64_t saved = static_cast<uint64_t>(pages) * page_tokens_;
  return {.protected_until = node.protected_until,
          .key = node.state_used_at + saved,
          .time = node.last_used,
          .node = &node};
}

// Counts a state for the nodes above it.
void CachedStates::count(RadixNode& node, int change) {
  num_cached_ += change;
  for (RadixNode* above = node.parent; !above->is_root(); above = above->parent)
    above->num_states_below += change;
}

void CachedStates::insert(RadixNode& node, int slot) {
  HOCKET_CHECK(node.state < 0);
  HOCKET_CHECK(nodes_[static_cast<size_t>(slot)] == nullptr);
  node.state = slot;
  nodes_[static_cast<size_t>(slot)] = &node;
  count(node, 1);
  use(node);
  order_.add(entry_of(node));
}

void CachedStates::use(RadixNode& node) {
  node.state_used_at = value_of_evicted_;
  node.state_saves_pages = pages_saved(node);
  reorder(node);
}

void CachedStates::pin(RadixNode& node) {
  HOCKET_CHECK(node.state >= 0);
  if (node.num_state_leases++ == 0) order_.remove(node);
}

void CachedStates::unpin(RadixNode& node) {
  HOCKET_CHECK(node.num_state_leases > 0);
  if (--node.num_state_leases == 0) order_.add(entry_of(node));
}

void CachedStates::reorder(RadixNode& node) {
  if (node.state_eviction_slot < 0) return;
  order_.remove(node);
  order_.add(entry_of(node));
}

void CachedStates::drop(RadixNode& node) {
  HOCKET_CHECK(node.state >= 0);
  HOCKET_CHECK(node.num_state_leases == 0);
  order_.remove(node);
  nodes_[static_cast<size_t>(node.state)] = nullptr;
  slots_->give_back(node.state);
  node.state = -1;
  count(node, -1);
}

// The value of a sequence's last state rises when the one above it is evicted. That is noticed
// here, when it would be evicted itself, so that no search for the states below an evicted one is
// needed.
bool CachedStates::evict_one() {
  while (!order_.empty()) {
    RadixNode& least = *order_.first().node;
    const NodeHeap::Entry now = entry_of(least);
    if (order_.first().key < now.key) {
      reorder(least);
      continue;
    }
    value_of_evicted_ = std::max(value_of_evicted_, now.key);
    ++num_evicted_;
    drop(least);
    return true;
  }
  return false;
}

}  // namespace hocket
