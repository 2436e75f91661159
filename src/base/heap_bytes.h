// The memory that an allocation takes, for plans and limits.   Thread: any.
#pragma once

#include <algorithm>
#include <cstdint>

namespace hocket {

// Returns the bytes that the C library's heap takes for an allocation of `size` bytes, with its own
// head.
constexpr int64_t heap_bytes(int64_t size) {
  return std::max<int64_t>(32, (size + 8 + 15) / 16 * 16);
}

// Returns the most bytes of a node in a std::list, std::set or std::unordered_map that holds `size`
// bytes: it has at most a color and three links, or a link and a hash.
constexpr int64_t node_heap_bytes(int64_t size) {
  return heap_bytes(size + 32);
}

// Returns the most bytes of a hash table's buckets for each of its entries: while the table grows,
// the old ones and twice as many new ones are there.
inline constexpr int64_t kBucketBytes = 24;

}  // namespace hocket
