// The turns of prompts that peers compute. One is sent when the pool has room for its pages, and no
// later one before it, or small ones would keep a large one waiting.
//
//   waits() at each look, until it returns false .. reserve() .. release()
//
// Owner: PagePrefetch. Thread: engine.
#pragma once

#include <optional>

#include "base/clock.h"
#include "base/ids.h"

namespace hocket {

class PeerTurns {
 public:
  // A prompt that is to be sent.
  struct Prompt {
    RequestId id{};
    int num_pages = 0;    // pages of the whole prompt
    int num_lacking = 0;  // those of them that the tree lacks
    TimePoint until{};    // the end of its wait
  };
  struct Pool {
    int num_available = 0;        // pages that are free, or would be after an eviction
    bool has_requests = false;    // requests run, and give their pages back when they end
    bool takes_no_order = false;  // as many prompts wait for their pages as may
  };

  // Returns true if the prompt waits: the pool has no room for its pages beside those of requests
  // that run and of other prompts under way, or an earlier one waits. A prompt that no request and
  // no other prompt keeps from the pool never waits.
  bool waits(const Prompt& prompt, const Pool& pool, TimePoint now) {
    if (next_ && (next_->id == prompt.id || now >= next_->until)) next_.reset();
    if (now >= prompt.until) return false;
    if (next_) return true;
    if (has_room(prompt, pool)) return false;
    next_ = {.id = prompt.id, .until = prompt.until};
    return true;
  }
  // Returns true while another prompt waits for room before this one.
  bool is_behind(RequestId id, TimePoint now) const {
    return next_ && next_->id != id && now < next_->until;
  }
  // The prompt waits no more, or is gone.
  void leave(RequestId id) {
    if (next_ && next_->id == id) next_.reset();
  }
  // Counts the pages of a prompt that is sent, until it has them or needs none.
  void reserve(int num_pages) { num_reserved_ += num_pages; }
  void release(int num_pages) { num_reserved_ -= num_pages; }

 private:
  // The prompt that waits for room, before all others that would be sent.
  struct Next {
    RequestId id{};
    TimePoint until{};  // the end of its wait
  };

  // The tree's pages of the prompt may be among those that are available, or pinned by requests
  // that run. Pages of other prompts under way come beside all of its own.
  bool has_room(const Prompt& prompt, const Pool& pool) const {
    if (pool.has_requests && pool.num_available < prompt.num_lacking) return false;
    return num_reserved_ == 0 ||
           (!pool.takes_no_order && pool.num_available >= num_reserved_ + prompt.num_pages);
  }

  int num_reserved_ = 0;
  std::optional<Next> next_;
};

}  // namespace hocket
