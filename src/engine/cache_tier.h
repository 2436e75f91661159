// The second tier of a rank's prefix cache: pages and states in files (compute/kv/page_files.h),
// which outlive their eviction from memory and the process, and those of peers (engine/pages/).
//
//   engine thread    on_pages_cached(), on_state_cached() copy what is new in the tree to buffers
//   thread kv_write                           writes them to files: behind the steps
//
//   engine thread    ready() orders the pages that the tree lacks, and holds the request
//   threads kv_read     hash, read and check one page after the other: ahead of the request, from
//                       files, then from peers; in models with delta nets up to the last border
//                       that has a state
//   engine thread         process_io() gives them pages of the pool and hands them to the tree
//
// A prompt is held only while reading promises to be faster than computing, by the speeds of both
// as measured, and no longer than computing would take (StoragePrefetch::timeout). A prompt that a
// peer computes (--disaggregation-mode decode) is held until the peer is done or fails. Faults of
// files and peers are announced once, and cost no more than the prefix: what cannot be read is
// computed, what cannot be written is left out.
//
// Owner: the rank. Thread: engine, except stats(); the two threads inside touch the files and the
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
#include "compute/kv/page_files.h"
#include "compute/kv/page_pool.h"
#include "compute/kv/state_pool.h"
#include "compute/tensor/buffer.h"
#include "engine/pages/page_server.h"
#include "engine/pages/peer_source.h"
#include "engine/watch/cache_tier_stats.h"
#include "policy/cache/page_hash.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

// Says how long a prompt waits for its pages (SGLang's names): not at all; until all are read,
// however long that takes; or at most as long as computing them would take.
enum class StoragePrefetch : uint8_t { best_effort, wait_complete, timeout };
// Errors: bad_value.
Result<StoragePrefetch> parse_storage_prefetch(std::string_view name);

// The pages that are written to files (SGLang's names): those that are computed, or those that a
// second request had a use for.
enum class StorageWrites : uint8_t { write_through, write_through_selective };
// Errors: bad_value, also for write_back, which writes at an eviction: a prefix would not outlive
// the process.
Result<StorageWrites> parse_storage_writes(std::string_view name);

class CacheTier {
 public:
  struct Options {
    std::shared_ptr<PageFiles> files;   // null: pages are not written
    std::shared_ptr<PeerSource> peers;  // asked for what files lack; null: none
    // The prompts that are computed for others, whose pages wait for a buffer; null: none are.
    std::shared_ptr<PrefillWatch> prefills;
    std::shared_ptr<PageServer::Counts> served;  // null: nothing is offered to peers
    PageKey form{};  // a hash of all that the bytes of a page depend on, beside its tokens
    int page_tokens = 0;
    StoragePrefetch prefetch = StoragePrefetch::timeout;
    StorageWrites writes = StorageWrites::write_through;
  };
  // Prompts of which fewer tokens are lacking are computed at once (SGLang's threshold).
  static constexpr int kFewestTokens = 256;
  static constexpr int64_t kBufferBytes = 64 << 20;  // to read and to write: each
  static constexpr size_t kStateBuffers = 2;         // the same for states
  static constexpr size_t kMaxReads = 64;            // requests whose pages are ordered
  static constexpr size_t kReadersOfPeers = 4;       // threads; files alone have one
  // After a file could not be written, none is tried for so long.
  static constexpr Duration kQuietTime = std::chrono::seconds(30);

  // `states` is null for models without delta nets. Both outlive it. Errors: out_of_memory.
  static Result<std::unique_ptr<CacheTier>> create(Options options, PagePool& pages,
                                                   StatePool* states);
  // Waits until all copied pages are written.
  ~CacheTier();
  // Called once, before all else. `wake` makes the engine's thread call process_io(); any thread
  // may call it. Both outlive the tier.
  void start(const Clock& clock, std::function<void()> wake);

  // Returns true if the request need not wait for its pages any more. The first call orders them.
  bool ready(const Request& request, const Scheduler& scheduler);
  // Writes the pages that the tree took of a request, as far as files lack them.
  void on_pages_cached(const Request& request);
  // The same for the state of its first `len` tokens, behind on_pages_cached().
  void on_state_cached(const Request& request, int len, int slot);
  // Returns true if process_io() has something to do.
  bool has_pending_io() const { return done_.size() > 0 || late_may_go_; }
  // Hands the pages that were read to the tree, and copies late ones to buffers. No step may be in
  // flight.
  void process_io(Scheduler& scheduler);
  // Writes what files lack of the tree's pages of a session, and its last state, then calls `done`
  // (thread kv_write) with the number of its first pages that files have, in models with delta nets
  // up to their last state, and whether these are all that the tree had.
  void save(const SessionTokens& session, const Scheduler& scheduler,
            std::function<void(int num_pages, bool whole)> done);
  // Reads what the tree lacks of a session, then calls `done` in process_io(). Returns false if too
  // many requests wait for pages.
  bool restore(const SessionTokens& session, const Scheduler& scheduler,
               std::function<void()> done);
  // Notes how long a step with prompts took.
  void note_prompts(int num_rows, Duration took);
  void forget(RequestId id);

  CacheTierStats stats() const;

 private:
  // A buffer of one page, or of one state, by its number.
  using BufferId = int;
  class Buffers {
   public:
    Buffers(Buffer memory, size_t count);
    std::span<std::byte> of(BufferId id) const {
      return {memory_.data() + id * bytes_, static_cast<size_t>(bytes_)};
    }
    Mailbox<BufferId> free;

   private:
    const Buffer memory_;
    const int64_t bytes_;  // size of one
  };
  // Pages to read: those of `tokens` from `first` on.
  struct ReadTask {
    CacheNamespace name_space;
    std::vector<TokenId> prompt;
    size_t num_whole = 0;  // tokens of its whole pages
    int first = 0;
    int peer = -1;                 // PagesWanted::peer
    int num_cached = 0;            // pages behind which a model can go on already
    std::function<void()> at_end;  // empty, or called in process_io() when all is read that will be
    std::atomic<bool> given_up{false};
  };
  enum class Kind : uint8_t { page, state, end };  // end: all of the task, or of a request
  struct Read {
    std::shared_ptr<ReadTask> task;
    Kind kind = Kind::end;
    int index = 0;  // place of the page in the task's tokens; state: pages that it stands for
    BufferId buffer = -1;
  };
  struct WriteTask {
    Kind kind = Kind::page;
    PageHash key{};
    BufferId buffer = -1;
    RequestId ended{};            // a request that was computed for a peer
    std::function<void()> saved;  // save() awaits the call, in place of a request
  };
  // The task as one reader works on it.
  struct Reading {
    std::shared_ptr<ReadTask> task;
    std::vector<PageHash> keys;
    size_t end = 0;    // the first page that is not handed over yet
    size_t state = 0;  // pages of the longest beginning whose state is there
    PageHash state_key{};
    PageReading* from = nullptr;
    bool failed = false;
  };
  // Pages of the tree, and states, that found no buffer although a peer waits for them. Nothing
  // pins them: what is evicted before its turn is left out.
  struct Late {
    CacheNamespace name_space;
    std::vector<TokenId> tokens;
    std::vector<size_t> states;  // for each how many pages it stands for
  };
  // A request that was seen here.
  struct TierRequest {
    std::shared_ptr<ReadTask> task;  // null: nothing is read for it
    bool asked = false;              // its pages are ordered, or need not be
    TimePoint give_up{};             // StoragePrefetch::timeout
    int num_reserved = 0;            // pages of the pool for those that a peer computes
    std::vector<PageHash> hashes;    // keys of its pages in the tree
    size_t num_written = 0;          // pages that are written, or were there
    std::optional<Late> late;
    bool ended = false;           // the request is gone, and what is late is left
    std::function<void()> saved;  // save() awaits the call: there never was a request
  };

  CacheTier(Options options, PagePool& pages, StatePool* states, std::array<Buffer, 4> memory);
  // The key of a state is made from that of the page that it stands behind.
  static PageHash hash_of_state(const PageHash& page);
  static size_t num_buffers(int64_t page_bytes);
  Buffers& read_buffers(Kind kind) { return kind == Kind::state ? read_states_ : read_pages_; }
  Buffers& write_buffers(Kind kind) { return kind == Kind::state ? write_states_ : write_pages_; }
  void hash_pages(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                  TierRequest& known) const;
  void run_reader();
  void run_writer();
  void write(const WriteTask& next);
  bool is_awaited(RequestId id) const {
    return options_.prefills && options_.prefills->is_watched(id);
  }
  size_t num_to_write(const Request& request) const;
  void write_found_state(const Request& request, TierRequest& known);
  std::optional<BufferId> buffer_to_write(Kind kind);
  size_t write_pages(std::span<const PageId> pages, TierRequest& known);
  bool write_state(size_t num_pages, int slot, const TierRequest& known);
  Late* late_of(const Request& request, TierRequest& known);
  void write_late(const Scheduler& scheduler);
  bool write_late(RequestId id, TierRequest& known, const Scheduler& scheduler);
  void end_awaited(RequestId id, std::function<void()> saved = {});
  bool is_quiet() const { return clock_->now().time_since_epoch().count() < quiet_until_ns_; }
  void read_all(const std::shared_ptr<ReadTask>& task);
  void read_from(PageSource& source, Reading& reading);
  bool read_pages(PageSource& source, Reading& reading);
  bool read_one(Reading& reading, Read next, const PageHash& key);
  size_t last_state(Reading& reading, size_t num_pages);
  bool wait_for_buffer(const Read& next, BufferId& buffer);
  void restore_pages(Scheduler& scheduler, std::vector<Read>& run);
  void restore_state(Scheduler& scheduler, const Read& state);
  void report(const Error& why, std::string_view consequence);
  PageHash root_of(const CacheNamespace& name_space) const;
  std::shared_ptr<ReadTask> request_pages(const Request& request, const Scheduler& scheduler);
  std::shared_ptr<ReadTask> task_of(const CacheNamespace& name_space,
                                    std::span<const TokenId> tokens, size_t num_whole,
                                    const Scheduler& scheduler) const;
  bool peers_prefill() const { return options_.peers && options_.peers->computes(); }
  bool has_no_room(int num_pages, const Scheduler& scheduler) const;
  void release(TierRequest& known);
  Duration time_to_compute(int num_tokens) const;
  Duration time_to_read(int64_t num_bytes) const;
  void give_up(TierRequest& known);

  const Options options_;
  PagePool& pages_;
  StatePool* const states_;
  const size_t page_tokens_;
  const Clock* clock_ = nullptr;
  std::function<void()> wake_;
  PageHasher hash_page_;  // the engine thread's
  std::unordered_map<RequestId, TierRequest> requests_;
  uint64_t next_save_ = UINT64_MAX;   // the next id of a session save, which has no request
  std::vector<PageSource*> sources_;  // in the order in which they are asked
  std::unique_ptr<FileSource> from_files_;
  int num_reserved_ = 0;        // TierRequest::num_reserved of all
  double seconds_per_row_ = 0;  // time of a prompt's row; 0: not measured

  Buffers read_pages_, write_pages_, read_states_, write_states_;
  Mailbox<std::shared_ptr<ReadTask>> reads_;
  Mailbox<Read> done_;
  Mailbox<WriteTask> writes_;
  std::atomic<uint64_t> num_written_{0}, num_left_out_{0}, num_read_{0}, num_given_up_{0};
  std::atomic<int64_t> read_ns_{0}, read_bytes_{0};
  // Requests with late pages, and whether a buffer has got free since the last process_io().
  std::atomic<int> num_late_{0};
  std::atomic<bool> late_may_go_{false};
  std::atomic<bool> stopping_{false};
  Mutex report_mutex_;
  std::string reported_ HOCKET_GUARDED_BY(report_mutex_);  // the last fault, reported once
  std::atomic<int64_t> quiet_until_ns_{0};  // no file is written before, since one failed
  std::vector<Thread> readers_;             // last: they use all that stands above
  Thread writer_;
};

}  // namespace hocket
