// Keeps the pages and states for which no buffer was free. They are copied during later steps, when
// a buffer gets free, unless they are evicted before. Copying takes time of the engine's thread, so
// in each step it stops after kMaxShare of the time of the last step; while the engine is idle it
// runs for kIdleTime at a time. Owner: WriteBehind. Thread: engine, except note_free_buffers().
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <vector>

#include "engine/tier/page_copier.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

class DelayedWrites {
 public:
  static constexpr int kMaxRequests = 64;  // requests that wait for a buffer
  // Delayed states of a request that no peer and no save awaits.
  static constexpr size_t kMaxStates = 4;
  // Shares of a step's time in which pages are copied, and those that a peer or a save awaits.
  static constexpr double kMaxShare = 0.01, kMaxAwaitedShare = 0.1;
  // Time of copying while the engine is idle, until it looks again for something to compute.
  static constexpr Duration kIdleTime = std::chrono::milliseconds(20);

  // `copier` outlives it.
  DelayedWrites(PageCopier& copier, size_t page_tokens)
      : copier_(copier), page_tokens_(page_tokens) {}
  void start(const Clock& clock, std::function<void()> wake);
  // Warns of the pages and states that were not copied.
  ~DelayedWrites();

  // Delay pages, or a state behind that many of them. Return false if too many requests wait.
  bool delay_pages(const Request& request, size_t num_pages, StoredRequest& stored);
  bool delay_state(const Request& request, size_t num_pages, StoredRequest& stored);
  // Delays all pages of a request that a peer awaits, and returns where states are added; null if
  // none awaits it.
  DelayedPages* delay_awaited(const Request& request, StoredRequest& stored);
  // Delays the pages of a session's save.
  void delay_saved(RequestId id, DelayedPages pages, StoredRequest& stored);

  // Returns true if copy() has something to do.
  bool may_go_on() const { return may_go_on_; }
  // Copies delayed pages for a part of a step's time. Requests have turns; those that are awaited
  // come first. is_wanted: set while the engine is idle, says that it has something to compute.
  // Returns the requests of which none is left.
  std::vector<RequestId> copy(StoredRequests& requests, const Scheduler& scheduler,
                              std::function<bool()> is_wanted);
  // Buffers have got free.   Thread: any.
  void note_free_buffers();
  void note_step(Duration took) { last_step_ = took; }

 private:
  bool copy_one(RequestId id, StoredRequest& stored, const Scheduler& scheduler, CopyLimit& limit);
  DelayedPages& add(const Request& request, size_t num_pages, StoredRequest& stored);
  bool copy_pages(const DelayedPages& delayed, StoredRequest& stored, const Scheduler& scheduler,
                  CopyLimit& limit, std::optional<UnwrittenReason> gives_up);
  bool copy_states(DelayedPages& delayed, StoredRequest& stored, const Scheduler& scheduler,
                   CopyLimit& limit, std::optional<UnwrittenReason> gives_up);

  PageCopier& copier_;
  const size_t page_tokens_;
  const Clock* clock_ = nullptr;
  std::function<void()> wake_;
  Duration last_step_{};
  std::vector<RequestId> turns_;      // those with delayed pages; the first one is next
  std::atomic<int> num_requests_{0};  // their number
  std::atomic<bool> may_go_on_{false};
};

}  // namespace hocket
