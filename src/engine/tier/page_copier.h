// Copies pages of the pool, and states, to the buffers from which they are written to stores.
// Owner: WriteBehind. Thread: engine.
#pragma once

#include <functional>
#include <span>
#include <utility>

#include "base/clock.h"
#include "compute/kv/page_pool.h"
#include "engine/pages/page_writer.h"
#include "engine/tier/border_states.h"
#include "engine/tier/stored_request.h"

namespace hocket {

// Bounds the time of copying. At least one page is copied in each step, so every page is copied
// eventually.
struct CopyLimit {
  const Clock& clock;
  TimePoint until;
  // Returns true if copying must end before that time; empty: it need not.
  std::function<bool()> is_wanted;
  bool has_looked = false, has_copied = false;
  bool was_reached = false;

  // Return true if there is time for the next request, the next look for pages in stores, or the
  // next page.
  bool allows_request() { return !(was_reached = (has_looked || has_copied) && is_over()); }
  bool allows_look() { return !(was_reached = std::exchange(has_looked, true) && is_over()); }
  bool allows_next() { return !(was_reached = std::exchange(has_copied, true) && is_over()); }

 private:
  bool is_over() const { return clock.now() >= until || (is_wanted && is_wanted()); }
};

class PageCopier {
 public:
  using CopyOutcome = PageWriter::CopyOutcome;
  // The pages of a call that were not copied, and why; CopyOutcome::yes: all were.
  struct Rest {
    size_t count = 0;
    CopyOutcome why = CopyOutcome::yes;
  };

  // All outlive it.
  PageCopier(PagePool& pages, const BorderStates& states, PageWriter& writer)
      : pages_(pages), states_(states), writer_(writer) {}

  // Copies those pages that stores lack, from the first that is not written on. limit: null for
  // none.   Precondition: stored.keys has their keys.
  Rest copy_pages(std::span<const PageId> pages, StoredRequest& stored, CopyLimit* limit = nullptr);
  // Copies the state behind that many pages.
  CopyOutcome copy_state(size_t num_pages, std::span<const int> places, const StoredRequest& stored,
                         CopyLimit* limit = nullptr);
  void leave_out(Rest rest) {
    writer_.leave_out(rest.count, rest.why == CopyOutcome::no_store ? UnwrittenReason::store_away
                                                                    : UnwrittenReason::no_buffer);
  }
  PageWriter& writer() { return writer_; }
  const BorderStates& states() const { return states_; }

 private:
  PagePool& pages_;
  const BorderStates& states_;
  PageWriter& writer_;
};

}  // namespace hocket
