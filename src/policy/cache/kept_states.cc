#include "policy/cache/kept_states.h"

#include <algorithm>
#include <tuple>

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

void KeptStates::keep(RadixNode& node, int slot, int page_tokens) {
  HOCKET_CHECK(node.state < 0);
  HOCKET_CHECK(nodes_[static_cast<size_t>(slot)] == nullptr);
  node.state = slot;
  nodes_[static_cast<size_t>(slot)] = &node;
  ++num_kept_;
  use(node, page_tokens);
}

void KeptStates::use(RadixNode& node, int page_tokens) {
  node.state_worth = worth_of_evicted_ +
                     static_cast<uint64_t>(pages_saved(node)) * static_cast<uint64_t>(page_tokens);
}

void KeptStates::pin(RadixNode& node) {
  HOCKET_CHECK(node.state >= 0);
  if (node.num_state_leases++ == 0) ++num_pinned_;
}

void KeptStates::unpin(RadixNode& node) {
  HOCKET_CHECK(node.num_state_leases > 0);
  if (--node.num_state_leases == 0) --num_pinned_;
}

void KeptStates::drop(RadixNode& node) {
  HOCKET_CHECK(node.state >= 0);
  HOCKET_CHECK(node.num_state_leases == 0);
  nodes_[static_cast<size_t>(node.state)] = nullptr;
  slots_->give_back(node.state);
  node.state = -1;
  --num_kept_;
}

bool KeptStates::evict_one() {
  RadixNode* least = nullptr;
  for (RadixNode* node : nodes_)
    if (node != nullptr && node->num_state_leases == 0 &&
        (least == nullptr || std::tie(node->kept_until, node->state_worth) <
                                 std::tie(least->kept_until, least->state_worth)))
      least = node;
  if (least == nullptr) return false;
  worth_of_evicted_ = std::max(worth_of_evicted_, least->state_worth);
  ++num_evicted_;
  drop(*least);
  return true;
}

}  // namespace hocket
