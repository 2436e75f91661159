// Allocates KV pages by id. Every page is in exactly one state: free, or owned by a request or the
// radix cache. Owner: the scheduler.   Thread: engine.   After construction nothing allocates.
#pragma once

#include <span>
#include <vector>

#include "base/ids.h"
#include "core/visible_keys.h"

namespace hocket {

class PageAllocator {
 public:
  // Precondition: num_pages >= 1, and page_tokens is a power of two.
  PageAllocator(int num_pages, int page_tokens);

  // Fills `out` and returns true, or takes nothing and returns false if too few are free.
  [[nodiscard]] bool take(std::span<PageId> out);
  // It is a bug to return a free page.
  void give_back(std::span<const PageId> pages);

  int num_pages() const { return static_cast<int>(is_free_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }
  int page_tokens() const { return page_tokens_; }

 private:
  std::vector<PageId> free_;  // a stack: the page freed last is the warmest
  std::vector<bool> is_free_;
  int page_tokens_;
};

// Returns ceil(tokens / page_tokens).
constexpr int pages_for(int tokens, int page_tokens) {
  return (tokens + page_tokens - 1) / page_tokens;
}

// Returns the page of the first token that a window layer sees from behind num_tokens tokens.
constexpr int first_seen_page(int num_tokens, const VisibleKeys& window, int page_tokens) {
  return window.first_key(num_tokens) / page_tokens;
}

}  // namespace hocket
