// The second tier of a rank's prefix cache: pages and states of stores (a folder of files, a Redis;
// engine/pages/page_store.h), which outlive their eviction from memory and the process, and those
// of peers. A *state* is the data that a model needs beside pages to continue behind them
// (engine/tier/border_states.h): that of delta nets, or a window.
//
//   ready(), take_read_pages()            PagePrefetch: the pages that a prompt lacks, and its wait
//     threads kv_read, kv_await             PageReader: reads and checks them
//   on_pages_cached(), copy_delayed()     WriteBehind: what is new in the tree
//     threads kv_write                      PageWriter: writes it behind the steps
//
// A fault of a store or a peer is logged once and costs no more than the prefix: pages that cannot
// be read are computed, and pages that cannot be written are dropped.
//
// Owner: the rank. Thread: engine, except stats(); the threads inside touch the stores and the
// buffers that they were given, never tree, pool or requests.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"
#include "engine/pages/page_reader.h"
#include "engine/pages/page_writer.h"
#include "engine/stats/cache_tier_stats.h"
#include "engine/tier/border_states.h"
#include "engine/tier/cache_tier_options.h"
#include "engine/tier/page_prefetch.h"
#include "engine/tier/write_behind.h"

namespace hocket {

class CacheTier {
 public:
  using Options = CacheTierOptions;

  // `pages` outlives it. Errors: out_of_memory.
  static Result<std::unique_ptr<CacheTier>> create(Options options, PagePool& pages,
                                                   const BorderStates& states);
  // Waits until all copied pages are written, at most PageWriter::kMaxEnd.
  ~CacheTier();
  // Called once, before all else. `wake` makes the engine's thread look at has_read_pages() and
  // has_delayed_pages(); any thread may call it. Both outlive the tier. `restored` is called in
  // take_read_pages() for each page that was read.
  void start(const Clock& clock, std::function<void()> wake, std::function<void(PageId)> restored);

  // Returns true if the request need not wait for its pages any more. The first call starts to read
  // them.
  bool ready(const Request& request, const Scheduler& scheduler) {
    return prefetch_.ready(request, scheduler);
  }
  // Returns true if a request that could begin is to wait once more, until ready(): its pages were
  // evicted while it waited in line or ran, and are read again.
  bool waits_again(const Request& request, const Scheduler& scheduler) {
    return prefetch_.waits_again(request, scheduler);
  }
  // Writes the pages that the tree took of a request, and windows behind them, as far as stores
  // lack them.
  void on_pages_cached(const Request& request, const Scheduler& scheduler);
  // The same for the state of delta nets behind its first `len` tokens, after on_pages_cached().
  void on_state_cached(const Request& request, int len, int slot) {
    writes_.on_state_cached(request, len, slot);
  }
  bool has_read_pages() const { return reader_.has_pages(); }
  // Hands pages that were read to the tree, as many as TakePace allows. No step may be in flight,
  // because it might still read the pages of the pool into which they are copied.
  void take_read_pages(Scheduler& scheduler, EngineLoad load) {
    prefetch_.take_read_pages(scheduler, load);
  }
  // Returns true if a peer awaits the request, and files lack one of the windows from which the
  // peer makes its own behind `border`, an end of its pages.
  bool lacks_windows(const Request& request, int border) {
    return writes_.lacks_windows(request, border);
  }
  bool has_delayed_pages() const { return writes_.has_delayed(); }
  // Copies pages that had found no buffer, for a part of a step's time. Steps may be in flight in
  // models without a module, since no step writes pages of the tree there; a module's rows are
  // written between steps. is_wanted: set while the engine is idle; copying ends early when it
  // returns true.
  void copy_delayed(const Scheduler& scheduler, std::function<bool()> is_wanted = {}) {
    writes_.copy_delayed(scheduler, std::move(is_wanted));
  }
  // Writes the tree's pages of a session that files lack, and its last state. Then calls `done`
  // (thread kv_write). num_pages: the number of its first pages that are in files; in models with
  // states, those up to the last state. whole: these are all that the tree had.
  void save(const SessionTokens& session, const Scheduler& scheduler,
            std::function<void(int num_pages, bool whole)> done) {
    writes_.save(session, scheduler, std::move(done));
  }
  // Reads the pages of a session that the tree lacks, until that time at most, then calls `done` in
  // take_read_pages(). Returns false if too many requests wait for pages.
  bool restore(const SessionTokens& session, const Scheduler& scheduler, TimePoint until,
               std::function<void()> done) {
    return prefetch_.restore(session, scheduler, until, std::move(done));
  }
  // Notes how long a step took.
  void note_step(const Batch& batch, Duration took);
  // Notes the requests that began in a batch, with the pages that they found. Returns how many of
  // their tokens were read from each tier: a token counts if its page was read for this request,
  // and for no tier if the tree had it before.
  PerTier<int> note_begun(const Batch& batch) { return prefetch_.note_begun(batch); }
  // Returns how many of the request's tokens were read from each tier, once it has begun and until
  // it is forgotten.
  PerTier<int> fetched(RequestId id) const { return prefetch_.fetched(id); }
  void forget(RequestId id);
  // Sends the services that wait for prompts the message that this rank will not compute them now.
  void end_prefills();

  CacheTierStats stats() const;

 private:
  CacheTier(Options options, PagePool& pages, const BorderStates& states,
            TransferBuffers::Memory reads, TransferBuffers::Memory writes);

  const Options options_;
  const BorderStates states_;
  ReadFigures figures_;
  PageReader reader_;
  PageWriter writer_;
  PagePrefetch prefetch_;
  WriteBehind writes_;
};

}  // namespace hocket
