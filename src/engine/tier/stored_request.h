// A request whose pages are written to stores (engine/tier/write_behind.h). Pure values.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "compute/kv/page_header.h"
#include "policy/cache/cache_namespace.h"

namespace hocket {

// The pages of a request whose copying was delayed, for lack of a buffer, and its last states, or
// all states if a peer or a session's save awaits them. Nothing pins them: those that are evicted
// before their turn are left out.
struct DelayedPages {
  bool is_awaited = false;
  CacheNamespace name_space;
  std::vector<TokenId> tokens;
  size_t num_pages = 0;        // number of its first pages that are to be written
  std::vector<size_t> states;  // for each how many pages it stands for
};

struct StoredRequest {
  std::vector<PageKey> keys;                  // those of its pages in the tree, and perhaps more
  size_t num_written = 0;                     // pages that are written, or were there
  size_t num_pages_with_windows_written = 0;  // up to there no window needs to be written
  std::optional<DelayedPages> delayed;
  bool has_ended = false;  // the request is gone, and delayed pages are left
  // Set for a session's save, which has no request: called when all is written. all_written: false
  // if the writers take no further order.
  std::function<void(bool all_written)> saved;
};
using StoredRequests = std::unordered_map<RequestId, StoredRequest>;

}  // namespace hocket
