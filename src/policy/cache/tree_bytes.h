// The most memory that a RadixCache takes beside the pages that it names, for the plan of memory.
// Thread: any.
#pragma once

#include <cstdint>

namespace hocket {

struct TreeSizes {
  int64_t num_pages = 0;
  int page_tokens = 1;
  int64_t num_window_pages = 0;  // 0: the model has no sliding windows
  int64_t num_states = 0;        // 0: the model has no delta nets
  bool has_events = false;       // each page may have a hash, for listeners
};

// Returns the bytes of the tree and of its orders of eviction, with those that the heap adds, if
// each page is a node in a namespace of its own.
int64_t max_tree_bytes(const TreeSizes& sizes);

}  // namespace hocket
