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

EvictionOrder::Entry EvictionOrder::entry_of(RadixNode& node) const {
  switch (policy_) {
    case EvictionPolicy::lru:
      return {0, node.last_used, &node};
    case EvictionPolicy::mru:
      return {0, ~node.last_used, &node};
    case EvictionPolicy::fifo:
      return {0, node.created, &node};
    case EvictionPolicy::filo:
      return {0, ~node.created, &node};
    case EvictionPolicy::lfu:
      return {node.num_uses, node.last_used, &node};
    case EvictionPolicy::slru:
      return {node.num_uses >= kProtectedUses, node.last_used, &node};
    case EvictionPolicy::priority:
      break;
  }
  const auto from_lowest = static_cast<uint64_t>(int64_t{node.priority} - INT32_MIN);
  return {from_lowest, node.last_used, &node};
}

void EvictionOrder::add(RadixNode& node) {
  HOCKET_CHECK(node.eviction_slot < 0);
  HOCKET_CHECK(heap_.size() < heap_.capacity());
  heap_.push_back(entry_of(node));
  heap_.back().kept_until = node.kept_until;
  sift(heap_.size() - 1);
}

void EvictionOrder::remove(RadixNode& node) {
  HOCKET_CHECK(node.eviction_slot >= 0);
  const auto slot = static_cast<size_t>(node.eviction_slot);
  HOCKET_CHECK(heap_[slot].node == &node);
  node.eviction_slot = -1;
  const Entry last = heap_.back();
  heap_.pop_back();
  if (last.node == &node) return;
  heap_[slot] = last;
  sift(slot);
}

void EvictionOrder::place(size_t slot, const Entry& entry) {
  heap_[slot] = entry;
  entry.node->eviction_slot = static_cast<int>(slot);
}

// Moves the entry at `slot` up or down to where it belongs.
void EvictionOrder::sift(size_t slot) {
  const Entry entry = heap_[slot];
  while (slot > 0 && entry.before(heap_[(slot - 1) / 2])) {
    place(slot, heap_[(slot - 1) / 2]);
    slot = (slot - 1) / 2;
  }
  for (size_t child; (child = 2 * slot + 1) < heap_.size(); slot = child) {
    if (child + 1 < heap_.size() && heap_[child + 1].before(heap_[child])) ++child;
    if (!heap_[child].before(entry)) break;
    place(slot, heap_[child]);
  }
  place(slot, entry);
}

}  // namespace hocket
