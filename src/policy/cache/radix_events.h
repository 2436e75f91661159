// Sends listeners the pages that a tree has (kv_events.h): the page hashes that they know are kept
// in the nodes. Without a channel it does nothing. Owner: RadixCache::Tree. Thread: engine.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "policy/cache/kv_events.h"
#include "policy/cache/page_hash.h"
#include "policy/cache/radix_node.h"

namespace hocket {

// The roots of a tree, by namespace.
using RadixRoots = std::unordered_map<CacheNamespace, std::unique_ptr<RadixNode>>;

class RadixEvents {
 public:
  // channel: null if there are no listeners; else it outlives this.
  RadixEvents(KvEventChannel* channel, int page_tokens)
      : channel_(channel), page_tokens_(static_cast<size_t>(page_tokens)) {}

  bool is_publishing() const { return channel_ != nullptr && channel_->is_publishing(); }
  // Pushes `stored` for each page from the root to the end of `node` that listeners do not know
  // yet.
  void stored(RadixNode& node);
  // Pushes `removed` for the last pages of a leaf, which has them still. Pages that were never sent
  // to listeners are left out.
  void removed(const RadixNode& leaf, int num_pages);
  // Pushes `cleared`: from then on listeners know no page. Precondition: there is a channel.
  void cleared(const RadixRoots& roots);
  // Sends the whole tree to listeners that have just begun or have caught up, from the roots down,
  // in at most half of the queue's free places; the other half is for events that happen meanwhile.
  // The remaining pages are sent when they are used again.
  void catch_up(const RadixRoots& roots);

 private:
  KvEventChannel* const channel_;
  const size_t page_tokens_;
  PageHasher hash_page_;
  std::vector<RadixNode*> path_;  // scratch of stored() and cleared(), kept for its memory
};

}  // namespace hocket
