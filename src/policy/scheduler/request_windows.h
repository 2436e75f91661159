// The pages of window layers of all requests, in models with sliding windows: which of them a
// request holds (request_window.h), and how many it may still need.
//
//   admitted -> begin() .. take() before each step, slide() after its commit, lease() when the tree
//     has taken pages .. -> free()
//
// A request needs at most max_pages(), however long it becomes. Those that it lacks are reserved
// from its admission on, so that a running request finds a page whenever it grows, and a prompt in
// chunks can always continue by a page.
//
// In models without windows nothing is held, and nothing is limited. Thread: engine.
#pragma once

#include <span>

#include "base/result.h"
#include "policy/cache/page_allocator.h"
#include "policy/cache/radix_cache.h"
#include "policy/scheduler/request.h"
#include "policy/scheduler/scheduler_options.h"

namespace hocket {

class RequestWindows {
 public:
  // Both outlive it. `cache` holds pages of allocator(), so it may be made later.
  RequestWindows(const SchedulerOptions& options, RadixCache& cache);

  bool enabled() const { return options_.window.bounded(); }
  // Returns the pages for the cache; null if there are none.
  PageAllocator* allocator() { return enabled() ? &pages_ : nullptr; }
  int num_pages() const { return pages_.num_pages(); }
  int num_free() const { return pages_.num_free(); }
  // Returns how many pages are free, or would be after an eviction.
  int num_available() const;

  // Returns the most rows of an answer in a step, for which pages are reserved.
  int max_rows() const;
  // Returns the most pages that a request holds at a time, without those of the first num_matched
  // pages of its sequence.
  int max_pages(const Request& request, int num_matched = 0) const;
  // Returns how many pages are kept for the request, beside those that it holds.
  int num_reserved(const Request& request) const;
  // Returns how many pages others could take if the request were retracted: those that it
  // returns, and those that are reserved for it.
  int num_freed_by_retraction(const Request& request) const;
  // Returns the pages that a request may take without taking what others reserve. A prompt that
  // continues has at least its own reserve; null stands for a prompt that would begin.
  int room(const Request* request, int reserved_by_others) const;

  // Returns the first page whose window page a peer with larger pages takes, which continues from
  // token `border` of the prompt. It makes its window from those of several borders here, as
  // record_borders() says (engine/pages/page_forms.h).
  int first_awaited_page(const Request& request, int border) const;

  // Gives the pages of its match to a request that begins.
  void begin(Request& request, PrefixMatch& match);
  void take(Request& request, int num_pages);
  // Takes pages that are free or evicted for it. Returns false, and takes nothing, if there are too
  // few.
  [[nodiscard]] bool take(std::span<PageId> out);
  // Gives up the pages that the rows behind the first `end` tokens do not see, nor a turn that
  // continues behind these tokens.
  void slide(Request& request, int end);
  // Pins what the tree got, and marks the pages with which the next turn begins. Precondition: the
  // request's lease covers its first leased_pages.
  void lease(Request& request);
  void free(Request& request);

  // The pages that requests own. add() checks that a request has as many as of others.
  struct OwnedPages {
    int num_pages = 0;
    void add(const Request& request);
  };
  // Recounts the pages: each is free, in the tree, or a request's.
  void check(const OwnedPages& by_requests) const;

 private:
  const SchedulerOptions& options_;
  PageAllocator pages_;
  RadixCache& cache_;
};

}  // namespace hocket
