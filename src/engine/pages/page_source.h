// Reads the pages of a prompt that the pool lacks, from a store (page_store.h) or from another
// service (a peer).
//
//   open(what is wanted) -> PromptPages: last_held(keys), expect(keys), get(key) ..
//
// A source never delays more than the thread that reads, and each of its waits has a limit.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "base/log_limit.h"
#include "base/mutex.h"
#include "base/result.h"
#include "compute/kv/page_header.h"
#include "engine/stats/page_tier.h"
#include "policy/cache/cache_namespace.h"

namespace hocket {

enum class PageKind : uint8_t { page = 0, state = 1 };

struct PagesWanted {
  CacheNamespace name_space;
  std::span<const TokenId> prompt;  // all of it: a peer may have to compute it
  std::span<const PageKey> keys;    // those of its whole pages, as far as they are known
  int peer = -1;                    // index of the peer to try first; -1: they take turns
  bool computes = false;            // a source that can computes what it lacks
  uint64_t* tried = nullptr;        // bits of the peers that were asked, and are not asked again
  // Returns true when no request waits for the pages any more; waits end soon after.
  std::function<bool()> is_over;
};

// The pages of one prompt as a source has them.   Thread: one, that of the reader.
class PromptPages {
 public:
  virtual ~PromptPages() = default;
  // Returns how many keys there are up to the last one whose page is there now; 0: none is.
  // Errors: io, timed_out.
  virtual Result<size_t> last_held(std::span<const PageKey> keys) = 0;
  // Says which pages get() will ask for next, in this order, so that they can travel together.
  // Errors: io, timed_out.
  virtual Result<void> expect(std::span<const PageKey> keys, PageKind kind) = 0;
  // Says that the next num_pages of these pages have buffers that wait for them. No more may be on
  // their way from another service, since nobody would take them from the connection. Until it is
  // called: one.
  virtual void note_room(size_t /*num_pages*/) {}
  // Fills `page`. Returns false if it is absent, damaged, or is_over(). Errors: io, timed_out.
  virtual Result<bool> get(const PageKey& key, std::span<std::byte> page) = 0;
  // Returns the least time that the last page took from its source, where that may have begun
  // before get() asked for it.
  virtual Duration time_ahead() const { return {}; }
};

// Thread: any.
class PageSource {
 public:
  static constexpr Duration kReportInterval = std::chrono::seconds(60);

  virtual ~PageSource() = default;
  virtual PageTier tier() const = 0;
  // Returns true if pages can be computed there when they are asked for (PagesWanted::computes):
  // then they need not exist yet.
  virtual bool computes() const { return false; }
  // Returns how many times open() may be tried for one prompt: each may choose another peer.
  virtual int num_tries() const { return 1; }
  // Returns true while nothing is read there, because it failed a moment ago.
  virtual bool is_away() const { return false; }
  // Returns null if no source is to be asked for now. Errors: io (none can be reached), timed_out.
  virtual Result<std::unique_ptr<PromptPages>> open(const PagesWanted& wanted) = 0;

  // Notes how long reading took. time_to_read() says how long it would take now: newer measurements
  // count more. It is zero while the speed is not known: until a short trial is over, and when
  // nothing was read in the last minutes. So each source is tried, and again if it was slow once.
  void note_read(int64_t num_bytes, Duration took);
  Duration time_to_read(int64_t num_bytes) const;
  // Logs a fault, at most once in kReportInterval, and the same one again only after a recovery:
  // faults may alternate, and their texts differ. A recovery is logged after a fault that was
  // logged.
  void report(const Error& why, std::string_view consequence);
  void note_success();

 private:
  mutable Mutex mutex_;
  // The time that reading took, and the bytes that were read; older reads count less.
  double seconds_ HOCKET_GUARDED_BY(mutex_) = 0, bytes_ HOCKET_GUARDED_BY(mutex_) = 0;
  TimePoint measured_ HOCKET_GUARDED_BY(mutex_){};
  std::string reported_ HOCKET_GUARDED_BY(mutex_);  // the fault in the log; empty: it is not there
  LogLimit reports_{kReportInterval};
  std::atomic<bool> has_fault_{false};
};

}  // namespace hocket
