// Writes pages and states behind the steps, to files and to a Redis.
//
//   engine thread        copy() fills a buffer, for the stores that lack the page
//   threads kv_write     write it, one thread a store: one that is slow delays no other
//
// Faults of stores, and a lack of memory on these threads, are announced once and cost no more than
// the pages, which are counted as left out. Owner: the rank's CacheTier. Thread: the engine's,
// beside the threads inside, except where a function says so.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/log_limit.h"
#include "base/mailbox.h"
#include "base/thread.h"
#include "engine/pages/file_store.h"
#include "engine/pages/page_buffers.h"
#include "engine/pages/prefill_watch.h"
#include "engine/pages/unwritten_pages.h"
#include "engine/stats/cache_tier_stats.h"

namespace hocket {

class PageWriter {
 public:
  static constexpr size_t kMaxAtOnce = 8;  // pages that are written with one call
  // Ends of saves that wait at once: one of each call for a session (Engine::kMaxSessionCalls), and
  // as many of calls that have timed out, whose orders stand in the queue of a disk that hangs. The
  // end of a further one counts as not all written, so its client is told that nothing was saved.
  static constexpr size_t kMaxSaves = 8;
  // Time for which copied pages are still written at the end. Then a write to Redis is broken off;
  // one to a file may end, within its limit (FileStore::kLimit).
  static constexpr Duration kMaxEnd = std::chrono::seconds(10);

  struct Options {
    std::shared_ptr<FileStore> files;        // null: there is no folder
    std::shared_ptr<PageStore> redis;        // null: there is none
    std::shared_ptr<PrefillWatch> prefills;  // null: no prompt is computed for others
  };
  PageWriter(Options options, TransferBuffers::Memory memory);
  // `on_free` is called from any thread when half of the buffers are free, or all is written.
  void start(const Clock& clock, std::function<void()> on_free);
  // Writes the copied pages until kMaxEnd from now; join() waits for that.
  void begin_end();
  void join();

  bool has_stores() const { return !stores_.empty(); }
  // Returns false also if there is no folder.
  bool files_take_writes() const { return options_.files && options_.files->takes_writes(); }
  // A service waits for the pages of this request, until end() is called.
  bool is_awaited(RequestId id) const {
    return options_.prefills && options_.prefills->is_watched(id);
  }
  // A page of that request will never be in a file, so no service waits for it any more.
  void end_waiting(RequestId id) {
    if (is_awaited(id)) options_.prefills->end(id);
  }
  // Returns a bit for each store that is not known to have the page, and counts a use for all.
  unsigned stores_lacking(const PageKey& key) const;
  // The outcome of copying a page or a state to a buffer.
  enum class CopyOutcome : uint8_t { yes, no_buffer, no_store, no_time };
  // A page or a state, and the stores that lack it: stores_lacking().
  struct Lacked {
    PageKind kind{};
    PageKey key{};
    unsigned stores = 0;
  };
  // Has `fill` copy it for these stores; yes: it was copied, or no store lacks it.
  CopyOutcome copy(const Lacked& lacked, const std::function<void(std::span<std::byte>)>& fill);
  // Counts pages and states that are not written, and says so from time to time.
  void leave_out(size_t count, UnwrittenReason why);
  using Saved = std::function<void(bool all_written)>;
  // After all pages copied so far are written: calls `saved`; if that is empty, tells the service
  // that waits for the request that no more pages follow. This may happen on a thread kv_write. If
  // too many calls wait already, it happens at once, with all_written = false.
  void end(RequestId request, Saved saved);
  // The time of a prompt's row as measured, which is saved beside the files' pages.
  void note_row_seconds(double row_seconds) { row_seconds_ = row_seconds; }
  void add_to(CacheTierStats& stats) const;

 private:
  struct Order {
    std::optional<PageKind> kind;  // nullopt: the end of a request, or of a session's save
    PageKey key{};
    PageBuffers::Id buffer = -1;
    RequestId ended{};
    Saved saved;  // in place of a request
  };
  // One store and its thread.
  struct StoreWriter {
    StoreWriter(std::shared_ptr<PageStore> to, size_t max_orders, size_t max_pages)
        : store(std::move(to)), orders(max_orders) {
      pages.reserve(max_pages);
    }
    const std::shared_ptr<PageStore> store;
    Mailbox<Order> orders;
    std::vector<Order> pages;  // that are written with the next call; the thread's
    std::atomic<uint64_t> num_written{0};
    size_t num_given_up = 0;  // at the end, for lack of time; the thread's, until it is joined
    Thread thread;
  };
  struct WriteOutcome {
    size_t num_written = 0;
    UnwrittenReason why = UnwrittenReason::no_memory;  // that the others are not written
  };
  bool is_over() const { return ending_ && RealClock().now() > end_; }
  void run(StoreWriter& writer);
  bool serve(StoreWriter& writer);
  void write(StoreWriter& writer);
  void put(StoreWriter& writer, WriteOutcome& outcome);
  void note_lost(const StoreWriter& writer);
  void report_lack(std::string_view what);
  void carry_out_end(const Order& order, bool all_written);
  void save_speed();

  const Options options_;
  const Clock* clock_ = nullptr;
  std::function<void()> on_free_;
  TransferBuffers buffers_;
  std::vector<std::unique_ptr<StoreWriter>> stores_;  // that of files is the first
  UnwrittenPages left_out_;
  LogLimit lacks_{PageSource::kReportInterval};
  std::atomic<double> row_seconds_{0};  // 0: no prompt was computed since the start
  TimePoint next_speed_save_{};         // that of the thread that writes files
  TimePoint end_{};                     // set before ending_, and never again
  std::atomic<bool> ending_{false};
};

}  // namespace hocket
