// The second tier of a rank's prefix cache: pages and states in stores, a folder of files and a
// Redis (engine/pages/page_store.h), where they outlive their eviction from memory and the process,
// and those of peers. A *state* is what the model needs beside pages to go on behind them
// (engine/border_states.h): that of delta nets, or a window.
//
//   engine thread    on_pages_cached(), on_state_cached() copy what is new in the tree to buffers
//   threads kv_write                          write them, one thread a store: behind the steps
//
//   engine thread    ready() orders the pages that the tree lacks, and holds the request
//   threads kv_read     hash, read and check one page after the other: ahead of the request, from
//                       files, then from Redis, then from peers; in models with states up to the
//                       last border that has one
//   engine thread         process_io() gives them pages of the pool and hands them to the tree
//
// A prompt is held only while reading promises to be faster than computing, by the speeds of both
// as measured, each source by its own, and once its reading has begun no longer than computing
// would take (StoragePrefetch::timeout). A source whose speed is not known is tried. A prompt that
// a peer computes (--disaggregation-mode decode) is held until the peer is done or fails. Faults of
// stores and peers are announced once, and cost no more than the prefix: what cannot be read is
// computed, what cannot be written is left out.
//
// Owner: the rank. Thread: engine, except stats(); the threads inside touch the stores and the
// buffers that they were handed, never tree, pool or requests.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/thread.h"
#include "compute/kv/page_pool.h"
#include "engine/border_states.h"
#include "engine/pages/file_store.h"
#include "engine/pages/left_out_pages.h"
#include "engine/pages/page_buffers.h"
#include "engine/pages/page_server.h"
#include "engine/pages/peer_source.h"
#include "engine/pages/prefill_load.h"
#include "engine/plan/tier_buffers.h"
#include "engine/prompt_speed.h"
#include "engine/watch/cache_tier_stats.h"
#include "policy/cache/page_hash.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

// Says how long a prompt waits for its pages (SGLang's names): not at all; until all are read,
// however long that takes; or at most as long as computing them would take.
enum class StoragePrefetch : uint8_t { best_effort, wait_complete, timeout };
// Errors: bad_value.
Result<StoragePrefetch> parse_storage_prefetch(std::string_view name);

// The pages that are written to stores (SGLang's names): those that are computed, or those that a
// second request had a use for.
enum class StorageWrites : uint8_t { write_through, write_through_selective };
// Errors: bad_value, also for write_back, which writes at an eviction: a prefix would not outlive
// the process.
Result<StorageWrites> parse_storage_writes(std::string_view name);

class CacheTier {
 public:
  struct Options {
    std::shared_ptr<FileStore> files;   // null: there is no folder
    std::shared_ptr<PageStore> redis;   // null: there is none
    std::shared_ptr<PeerSource> peers;  // asked for what stores lack; null: none
    // The prompts that are computed for others, whose pages wait for a buffer; null: none can be.
    std::shared_ptr<PrefillWatch> prefills;
    std::shared_ptr<PrefillRole> role;           // never null
    std::shared_ptr<PageServer::Counts> served;  // null: nothing is offered to peers
    PageKey form{};  // a hash of all that the bytes of a page depend on, beside its tokens
    int page_tokens = 0;
    StoragePrefetch prefetch = StoragePrefetch::timeout;
    StorageWrites writes = StorageWrites::write_through;
    int64_t max_record_bytes = TierBuffers::kBytes;
    double row_seconds = 0;  // the time of a prompt's row as measured before; 0: not known
  };
  // Prompts of which fewer tokens are lacking are computed at once (SGLang's threshold).
  static constexpr int kFewestTokens = 256;
  static constexpr size_t kMaxReads = 64;  // requests whose pages are ordered
  static constexpr int kMaxLate = 64;      // requests whose pages or states wait for a buffer
  static constexpr size_t kMaxLateStates = 4;
  static constexpr size_t kReaders = 4;    // threads; files alone have one
  static constexpr size_t kMaxAtOnce = 8;  // pages that are written with one call
  // Time for which copied pages are still written at shutdown. Then a write to Redis is broken off;
  // one to a file may end, within FileStore::kLimit.
  static constexpr Duration kMaxEnd = std::chrono::seconds(10);

  // `pages` outlives it. Errors: out_of_memory.
  static Result<std::unique_ptr<CacheTier>> create(Options options, PagePool& pages,
                                                   const BorderStates& states);
  // Waits until all copied pages are written, at most kMaxEnd.
  ~CacheTier();
  // Called once, before all else. `wake` makes the engine's thread call process_io(); any thread
  // may call it. Both outlive the tier. `restored` is called in process_io() for each page that
  // came back.
  void start(const Clock& clock, std::function<void()> wake, std::function<void(PageId)> restored);

  // Returns true if the request need not wait for its pages any more. The first call orders them.
  bool ready(const Request& request, const Scheduler& scheduler);
  // Writes the pages that the tree took of a request, and windows behind them, as far as stores
  // lack them.
  void on_pages_cached(const Request& request, const Scheduler& scheduler);
  // The same for the state of delta nets behind its first `len` tokens, after on_pages_cached().
  void on_state_cached(const Request& request, int len, int slot);
  // Returns true if process_io() has something to do.
  bool has_pending_io() const { return done_.size() > 0 || late_may_go_; }
  // Hands the pages that were read to the tree, and copies late ones to buffers. No step may be in
  // flight.
  void process_io(Scheduler& scheduler);
  // Writes the tree's pages of a session that files lack, and its last state. Then calls `done`
  // (thread kv_write). num_pages: so many of its first pages are in files; in models with states,
  // those up to the last state. whole: these are all that the tree had.
  void save(const SessionTokens& session, const Scheduler& scheduler,
            std::function<void(int num_pages, bool whole)> done);
  // Reads what the tree lacks of a session, then calls `done` in process_io(). Returns false if too
  // many requests wait for pages.
  bool restore(const SessionTokens& session, const Scheduler& scheduler,
               std::function<void()> done);
  // Notes how long a step took.
  void note_step(const Batch& batch, Duration took);
  // Returns how many of the request's tokens came from where, until it is forgotten.
  ByTier<int> fetched(RequestId id) const;
  void forget(RequestId id);
  // Tells the services that wait for prompts that this rank will not compute them now.
  void end_prefills();

  CacheTierStats stats() const;

 private:
  using BufferId = PageBuffers::Id;
  // Pages to read: those of `tokens` from `first` on.
  struct ReadTask {
    RequestId request{};  // that waits for them, if there is one
    CacheNamespace name_space;
    std::vector<TokenId> prompt;
    size_t num_whole = 0;  // tokens of its whole pages
    int first = 0;
    int peer = -1;                          // PagesWanted::peer
    bool is_sent = false;                   // a peer computes the prompt: PagesWanted::computes
    int num_cached = 0;                     // pages behind which a model can go on already
    Duration to_compute = Duration::max();  // a source that would take longer is not read
    std::function<void()> at_end;  // empty, or called in process_io() when all is read that will be
    std::atomic<bool> given_up{false};
    std::atomic<int64_t> begun_ns{0};  // when its reading began; 0: it has not
  };
  enum class Kind : uint8_t { page, state, end };  // end: all of the task, or of a request
  struct Read {
    std::shared_ptr<ReadTask> task;
    Kind kind = Kind::end;
    int index = 0;  // place of the page in the task's tokens; state: pages that it stands for
    BufferId buffer = -1;
    PageTier tier = PageTier::file;  // from where it came
  };
  struct WriteTask {
    Kind kind = Kind::page;
    PageHash key{};
    BufferId buffer = -1;
    RequestId ended{};            // a request that was computed for a peer
    std::function<void()> saved;  // save() awaits the call, in place of a request
  };
  // Writes what one store lacks, on a thread of its own: one that is slow holds up no other.
  struct Writer {
    Writer(std::shared_ptr<PageStore> to, size_t capacity)
        : store(std::move(to)), orders(capacity) {}
    const std::shared_ptr<PageStore> store;
    Mailbox<WriteTask> orders;
    std::atomic<uint64_t> num_written{0};
    size_t num_given_up = 0;  // at the end, for lack of time; the thread's, until it is joined
    Thread thread;
  };
  // The task as one reader works on it.
  struct Reading {
    std::shared_ptr<ReadTask> task;
    std::vector<PageHash> keys;
    size_t end = 0;    // the first page that is not handed over yet
    size_t state = 0;  // pages of the longest beginning whose state is there
    PageHash state_key{};
    PageSource* source = nullptr;
    PageReading* from = nullptr;
    bool failed = false;
  };
  // The pages of a request that found no buffer, and its last states, or all states if a peer or
  // save() awaits them. Nothing pins them: what is evicted before its turn is left out.
  struct Late {
    bool is_awaited = false;
    CacheNamespace name_space;
    std::vector<TokenId> tokens;
    size_t num_pages = 0;        // so many of its first pages are to be written
    std::vector<size_t> states;  // for each how many pages it stands for
  };
  // Buffers of pages, and of states.
  struct Buffers {
    PageBuffers pages, states;
    PageBuffers& of(Kind kind) { return kind == Kind::state ? states : pages; }
  };
  // How much was read from where, for stats().
  struct ReadFigures {
    ByTier<std::atomic<uint64_t>> num_pages{}, num_tokens{};
    ByTier<std::atomic<int64_t>> read_ns{}, saved_ns{};
    std::atomic<uint64_t> num_given_up{0};  // requests that went on before all was read
    ByNotRead<std::atomic<uint64_t>> num_not_read{};
  };
  // When the tier ends: readers stop at once, and writers may write until `until`.
  struct End {
    std::atomic<bool> has_begun{false};
    TimePoint until{};  // set before has_begun, and never again
    bool is_over() const { return has_begun && RealClock().now() > until; }
  };
  enum class Copied : uint8_t { yes, no_buffer, no_store };
  // A request that was seen here.
  struct TierRequest {
    std::shared_ptr<ReadTask> task;             // null: nothing is read for it
    bool asked = false;                         // its pages are ordered, or need not be
    Duration may_take{};                        // its reading: StoragePrefetch::timeout
    int num_reserved = 0;                       // pages of the pool for those that a peer computes
    std::vector<PageHash> hashes;               // keys of its pages in the tree
    ByTier<int> fetched{};                      // tokens that came from there
    size_t num_written = 0;                     // pages that are written, or were there
    size_t num_pages_with_windows_written = 0;  // up to there no window needs to be written
    std::optional<Late> late;
    bool ended = false;           // the request is gone, and what is late is left
    std::function<void()> saved;  // save() awaits the call: there never was a request
  };

  CacheTier(Options options, PagePool& pages, const BorderStates& states, const TierBuffers& sizes,
            std::array<Buffer, 4> memory);
  // The key of a state is made from that of the page that it stands behind.
  static PageHash hash_of_state(const PageHash& page);
  void hash_pages(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                  TierRequest& known) const;
  void run_reader();
  void run_writer(Writer& writer);
  void end_order(const WriteTask& task);
  void write(Writer& writer, std::span<const WriteTask> orders);
  bool is_awaited(RequestId id) const {
    return options_.prefills && options_.prefills->is_watched(id);
  }
  size_t num_to_write(const Request& request) const;
  void write_found_state(const Request& request, TierRequest& known);
  unsigned stores_lacking(const PageKey& key) const;
  Copied write_one(Kind kind, const PageKey& key,
                   const std::function<void(std::span<std::byte>)>& fill);
  // The pages of a call that were not copied, and why; Copied::yes: all were.
  struct NotCopied {
    size_t count = 0;
    Copied why = Copied::yes;
  };
  NotCopied write_pages(std::span<const PageId> pages, TierRequest& known);
  Copied write_state(size_t num_pages, std::span<const int> places, const TierRequest& known);
  void write_or_leave_state(const Request& request, TierRequest& known, size_t num_pages,
                            std::span<const int> places);
  void write_windows(const Request& request, TierRequest& known, const Scheduler& scheduler);
  Late* late_of(const Request& request, TierRequest& known);
  Late& make_late(const Request& request, size_t num_pages, TierRequest& known);
  bool delay_pages(const Request& request, size_t num_pages, TierRequest& known);
  bool delay_state(const Request& request, size_t num_pages, TierRequest& known);
  void leave_out(size_t count, LeftOut why);
  void leave_out(NotCopied left) {
    leave_out(left.count, left.why == Copied::no_store ? LeftOut::store_away : LeftOut::no_buffer);
  }
  void write_late(const Scheduler& scheduler);
  bool write_late(RequestId id, TierRequest& known, const Scheduler& scheduler);
  void end_awaited(RequestId id, std::function<void()> saved = {});
  bool is_quiet() const { return !options_.files || !options_.files->takes_writes(); }
  void read_all(const std::shared_ptr<ReadTask>& task);
  void read_from(PageSource& source, Reading& reading);
  bool read_pages(Reading& reading);
  void fail_reading(Reading& reading, const Error& why);
  bool is_done(const Reading& reading) const;
  bool is_dear(const PageSource& source, const ReadTask& task, size_t num_pages) const;
  bool read_one(Reading& reading, Read next, const PageHash& key);
  size_t last_state(Reading& reading, size_t num_pages);
  bool wait_for_buffer(const Read& next, BufferId& buffer);
  void hand_over(Read read);
  void restore_pages(Scheduler& scheduler, std::vector<Read>& run);
  void restore_state(Scheduler& scheduler, const Read& state);
  PageHash root_of(const CacheNamespace& name_space) const;
  std::shared_ptr<ReadTask> request_pages(const Request& request, const Scheduler& scheduler,
                                          bool is_sent);
  std::shared_ptr<ReadTask> task_of(const CacheNamespace& name_space,
                                    std::span<const TokenId> tokens, size_t num_whole,
                                    const Scheduler& scheduler) const;
  // A prompt that is computed for a peer is sent to no other.
  bool may_send(const Request& request) {
    return options_.peers && load_.sends_prompts(clock_->now()) && !is_awaited(request.id);
  }
  bool has_no_room(int num_pages, const Scheduler& scheduler) const;
  void release(TierRequest& known);
  Duration time_to_compute(int num_tokens) const;
  int64_t bytes_of(int64_t num_pages) const;
  void give_up(TierRequest& known);
  void note_not_read(NotRead why);
  void save_speed();

  const Options options_;
  PagePool& pages_;
  const BorderStates states_;
  const size_t page_tokens_;
  const Clock* clock_ = nullptr;
  std::function<void()> wake_;
  std::function<void(PageId)> restored_;
  PageHasher hash_page_;  // the engine thread's
  std::unordered_map<RequestId, TierRequest> requests_;
  uint64_t next_save_ = UINT64_MAX;   // the next id of a session save, which has no request
  std::vector<PageSource*> sources_;  // in the order in which they are asked
  int num_reserved_ = 0;              // TierRequest::num_reserved of all
  PromptSpeed speed_;
  std::atomic<double> row_seconds_{0};  // that of speed_; 0: no prompt was computed since the start
  TimePoint next_speed_save_{};         // the writer's of files
  PrefillLoad load_;

  Buffers read_buffers_, write_buffers_;
  Mailbox<std::shared_ptr<ReadTask>> reads_;
  Mailbox<Read> done_;
  // The writer of files is the first.
  std::vector<std::unique_ptr<Writer>> writers_;
  LeftOutPages left_out_;
  ReadFigures reads_done_;
  // Requests with late pages, and whether a buffer has got free since the last process_io().
  std::atomic<int> num_late_{0};
  std::atomic<bool> late_may_go_{false};
  End end_;
  std::vector<Thread> readers_;  // last: they use all that stands above
};

}  // namespace hocket
