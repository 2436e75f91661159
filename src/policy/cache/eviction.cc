#include "policy/cache/eviction.h"

#include <array>

#include "base/check.h"
#include "policy/cache/radix_node.h"

namespace hocket {
namespace {

constexpr std::array<std::string_view, kNumEvictionPolicies> kNames = {
    "lru", "lfu", "fifo", "mru", "filo", "slru", "priority"};

// A node with this many uses was used again after it was computed.
constexpr uint32_t kProtectedUses = 2;

}  // namespace

Result<EvictionPolicy> parse_eviction_policy(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<EvictionPolicy>(i);
  return fail(error(ErrorCode::bad_value,
                    "--radix-eviction-policy {} is not one of lru, lfu, fifo, mru, filo, slru, "
                    "priority",
                    name)
                  .with_param("radix-eviction-policy"));
}

void NodeHeap::add(const Entry& entry) {
  HOCKET_CHECK(entry.node->*slot_ < 0);
  HOCKET_CHECK(heap_.size() < heap_.capacity());
  heap_.push_back(entry);
  sift(heap_.size() - 1);
}

void NodeHeap::remove(RadixNode& node) {
  HOCKET_CHECK(node.*slot_ >= 0);
  const auto slot = static_cast<size_t>(node.*slot_);
  HOCKET_CHECK(heap_[slot].node == &node);
  node.*slot_ = -1;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (last.node == &node) return;
  heap_[slot] = last;
  sift(slot);
}

void NodeHeap::put(size_t slot, const Entry& entry) {
  heap_[slot] = entry;
  entry.node->*slot_ = static_cast<int>(slot);
}

// Moves the entry at `slot` up or down to where it belongs.
void NodeHeap::sift(size_t slot) {
  const Entry entry = heap_[slot];
  while (slot > 0 && entry.before(heap_[(slot - 1) / 2])) {
    put(slot, heap_[(slot - 1) / 2]);
    slot = (slot - 1) / 2;
  }
  for (size_t child; (child = 2 * slot + 1) < heap_.size(); slot = child) {
    if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
    if (!heap_[child].before(entry)) break;
    put(slot, heap_[child]);
  }
  put(slot, entry);
}

EvictionOrder::EvictionOrder(EvictionPolicy policy, int num_pages)
    : policy_(policy), heap_(&RadixNode::eviction_slot, num_pages) {}

void EvictionOrder::add(RadixNode& node) {
  NodeHeap::Entry entry{
      .protected_until = node.protected_until, .time = node.last_used, .node = &node};
  switch (policy_) {
    case EvictionPolicy::lru:
      break;
    case EvictionPolicy::mru:
      entry.time = ~node.last_used;
      break;
    case EvictionPolicy::fifo:
      entry.time = node.created;
      break;
    case EvictionPolicy::filo:
      entry.time = ~node.created;
      break;
    case EvictionPolicy::lfu:
      entry.key = node.num_uses;
      break;
    case EvictionPolicy::slru:
      entry.key = node.num_uses >= kProtectedUses ? 1 : 0;
      break;
    case EvictionPolicy::priority:
      entry.key = static_cast<uint64_t>(int64_t{node.priority} - INT32_MIN);  // from the lowest
      break;
  }
  heap_.add(entry);
}

}  // namespace hocket
