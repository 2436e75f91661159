// Gives the leaf that is evicted next, among those that no lease pins. Protected leaves
// (RadixCache::protect) come behind all others, the smallest `until` first; others by the policy:
//
//   lru   last use             mru   the same, latest first     slru  used once only, then last use
//   fifo  creation             filo  the same, latest first     lfu   number of uses, then last use
//   priority  the largest priority of the requests that computed the pages, then last use
//
// Invariant: the order holds exactly the nodes with is_evictable_leaf(). Thread: engine.   After
// construction nothing allocates: there are never more leaves than pages. Source:
// docs/contracts/cache.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/result.h"

namespace hocket {

struct RadixNode;

enum class EvictionPolicy : uint8_t { lru, lfu, fifo, mru, filo, slru, priority };
// Errors: bad_value; its message lists all names.
Result<EvictionPolicy> parse_eviction_policy(std::string_view name);
inline constexpr int kNumEvictionPolicies = 7;

// A binary heap over nodes; the smallest entry is first. Entries keep the values that they were
// added with. O(log n) each.
class NodeHeap {
 public:
  struct Entry {
    uint64_t protected_until = 0, key = 0, time = 0;
    RadixNode* node = nullptr;
    bool before(const Entry& other) const {
      return std::tie(protected_until, key, time) <
             std::tie(other.protected_until, other.key, other.time);
    }
  };

  // slot: where a node keeps its position in this heap; -1: it is not in it.
  NodeHeap(int RadixNode::* slot, int max_nodes) : slot_(slot) {
    heap_.reserve(static_cast<size_t>(max_nodes));
  }
  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  const Entry& first() const { return heap_.front(); }
  void add(const Entry& entry);
  void remove(RadixNode& node);

 private:
  void put(size_t slot, const Entry& entry);
  void sift(size_t slot);

  int RadixNode::* slot_;
  std::vector<Entry> heap_;
};

class EvictionOrder {
 public:
  EvictionOrder(EvictionPolicy policy, int num_pages);

  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  RadixNode& first() const { return *heap_.first().node; }
  void add(RadixNode& node);
  void remove(RadixNode& node) { heap_.remove(node); }

 private:
  EvictionPolicy policy_;
  NodeHeap heap_;
};

}  // namespace hocket
