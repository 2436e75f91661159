// The requests that compute prompts for clients (page_server.h), and which of their pages are lost.
// A connection waits here for the next page of its prompt, also while the prompt stands in
// line behind those of others. Owner: shared by the server, the writer of pages and the engine.
// Thread: any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/mutex.h"
#include "base/result.h"
#include "compute/kv/page_header.h"

namespace hocket {

class PrefillWatch {
 public:
  static constexpr size_t kMax = 256;
  // Limit of the lost pages that are remembered while requests are watched. With one more, all
  // requests end.
  static constexpr size_t kMaxLost = 1024;

  PrefillWatch();
  // Errors: queue_full.
  Result<void> begin(RequestId id);
  bool is_watched(RequestId id) const;
  int size() const;
  // Call when every page of the request that will ever be written is in its file.
  void end(RequestId id);
  void end_all();
  // Call when a page was written; it may have been lost before.
  void note_page(const PageKey& key);
  // Call when a page is not written, though the folder takes others. Nobody waits for it then, and
  // requests that do not need it go on.
  void note_lost(const PageKey& key);
  bool is_lost(const PageKey& key) const;
  // Returns the time at which a page was written or a request ended, whichever was the last.
  TimePoint last_progress() const { return TimePoint(Duration(progress_ns_.load())); }
  // Waits until something has changed, or for `max_wait`.
  void wait(Duration max_wait);

 private:
  void note_progress();

  mutable Mutex mutex_;
  std::condition_variable changed_;
  std::unordered_set<RequestId> live_ HOCKET_GUARDED_BY(mutex_);
  std::vector<PageKey> lost_ HOCKET_GUARDED_BY(mutex_);  // never grows beyond its first capacity
  std::atomic<int64_t> progress_ns_{0};
};

}  // namespace hocket
