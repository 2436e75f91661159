// A store of pages, for reading and writing: a folder of files (file_store.h), or a Redis
// (redis_store.h). The tier (engine/tier/cache_tier.h) works through this interface alone:
//
//   has(key)                            is it known to be there? asks no server
//   exist(keys), put(pages)             in batches
//   open() -> expect(keys), get(key)..  reading, in the order of one prompt (page_source.h)
//
// Each wait has a limit. A store that hangs or cannot be reached counts as away for a while: no
// thread reads, writes or waits there. A store that refuses writes (full, read-only) gets none for
// a while, and is still read. Each page that is read is checked: if it is damaged, cut off or
// another key's, get() returns that it is absent.   Thread: any.
#pragma once

#include <vector>

#include "engine/pages/page_source.h"

namespace hocket {

class PageStore : public PageSource {
 public:
  // Time for which nothing is tried after a failure.
  static constexpr Duration kRetryInterval = std::chrono::seconds(30);

  struct Page {
    PageKey key{};
    std::span<const std::byte> bytes;
  };
  struct Figures {
    int64_t pages = 0, bytes = 0;  // known to be there
    uint64_t evicted_total = 0, damaged_total = 0, failures_total = 0;
  };

  explicit PageStore(Duration retry_interval) : retry_interval_(retry_interval) {}

  // Returns true if the page is known to be there. Never waits. The engine's thread may call this,
  // figures(), is_away() and takes_writes(), and nothing else of a store.
  virtual bool has(const PageKey& key) = 0;
  virtual Figures figures() const = 0;
  bool is_away() const override { return now_ns() < away_until_ns_; }
  bool takes_writes() const { return !is_away() && now_ns() >= full_until_ns_; }

  // Says of each key whether its page is there now. Errors: io, timed_out.
  virtual Result<std::vector<bool>> exist(std::span<const PageKey> keys) = 0;
  // Returns how many of the pages are there now: all, or those that the store has room for. When
  // `is_over` returns true, a folder finishes the file that it writes and returns the number so
  // far; Redis breaks off with shutting_down. Errors: io, timed_out, shutting_down; after an error
  // any of the pages may be there.
  virtual Result<size_t> put(std::span<const Page> pages, const std::function<bool()>& is_over) = 0;

  // No page is written for a while, since one could not be.
  void pause_writes() { full_until_ns_ = now_ns() + retry_interval_.count(); }

 protected:
  // Nothing is read or written for a while.
  void leave() { away_until_ns_ = now_ns() + retry_interval_.count(); }

 private:
  static int64_t now_ns() { return RealClock().now().time_since_epoch().count(); }

  const Duration retry_interval_;
  std::atomic<int64_t> away_until_ns_{0}, full_until_ns_{0};
};

}  // namespace hocket
