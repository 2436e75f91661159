#include "policy/cache/tree_bytes.h"

#include "base/heap_bytes.h"
#include "policy/cache/cached_windows.h"
#include "policy/cache/eviction.h"
#include "policy/cache/radix_events.h"
#include "policy/cache/radix_node.h"

namespace hocket {
namespace {

template <class T>
constexpr int64_t bytes_of(int64_t count) {
  return count * static_cast<int64_t>(sizeof(T));
}

}  // namespace

int64_t max_tree_bytes(const TreeSizes& sizes) {
  const int64_t node = heap_bytes(sizeof(RadixNode));
  const int64_t child = node_heap_bytes(sizeof(RadixNode::Children::value_type));
  const int64_t root = node + node_heap_bytes(sizeof(RadixRoots::value_type)) + kBucketBytes;
  // A leaf that was evicted in part keeps the memory of all its pages until it is used again. Only
  // one leaf is, if the leaf used last the longest ago goes first, and all pages may be its own.
  int64_t lists =
      heap_bytes(bytes_of<TokenId>(2 * sizes.page_tokens)) + heap_bytes(bytes_of<PageId>(2));
  if (sizes.num_window_pages > 0) lists += heap_bytes(bytes_of<PageId>(2));
  if (sizes.has_events) lists += heap_bytes(bytes_of<PageHash>(2));
  const int64_t page = node + child + root + lists + bytes_of<NodeHeap::Entry>(1);
  return sizes.num_pages * page + CachedWindows::bytes_for(sizes.num_window_pages) +
         sizes.num_states * (bytes_of<NodeHeap::Entry>(1) + bytes_of<RadixNode*>(1));
}

}  // namespace hocket
