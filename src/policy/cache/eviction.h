// Gives the leaf that is evicted next. It is a binary heap over the leaves that no lease pins; the
// smallest sort key (Entry) is on top. Leaves that someone keeps (RadixCache::keep) come behind all
// others, the shortest kept first; others by the policy:
//
//   lru   last use             mru   the same, latest first     slru  used once only, then last use
//   fifo  creation             filo  the same, latest first     lfu   number of uses, then last use
//   priority  the largest priority of the requests that computed the pages, then last use
//
// Invariant: the heap holds exactly the nodes with is_evictable_leaf(), each with its
// eviction_slot. Thread: engine.   After construction nothing allocates: there are never more
// leaves than pages. Source: docs/contracts/cache.md.
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

class EvictionOrder {
 public:
  EvictionOrder(EvictionPolicy policy, int num_pages) : policy_(policy) {
    heap_.reserve(static_cast<size_t>(num_pages));
  }

  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  RadixNode& first() const { return *heap_.front().node; }

  // O(log n) each. The values that a node is sorted by must not change while the node is in the
  // heap.
  void add(RadixNode& node);
  void remove(RadixNode& node);

 private:
  struct Entry {
    uint64_t rank = 0, time = 0;
    RadixNode* node = nullptr;
    uint64_t kept_until = 0;
    bool before(const Entry& other) const {
      return std::tie(kept_until, rank, time) < std::tie(other.kept_until, other.rank, other.time);
    }
  };
  Entry entry_of(RadixNode& node) const;
  void place(size_t slot, const Entry& entry);
  void sift(size_t slot);

  EvictionPolicy policy_;
  std::vector<Entry> heap_;
};

}  // namespace hocket
