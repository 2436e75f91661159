// Starts to read the stored pages that a prompt lacks (engine/pages/page_reader.h), holds the
// prompt as long as reading is expected to be faster than computing, and adds the pages to the
// tree.
//
// Both speeds are measured, that of reading for each source. Once reading has begun, a prompt is
// held no longer than computing would take (StoragePrefetch::timeout); before, it waits for its
// turn, but while the engine is idle no longer than kMaxTurn times as long. One that a peer
// computes (--disaggregation-mode decode) is held until the peer is done or fails. Whatever the
// policy, no prompt is held longer than max_hold().
//
// Prompts with a common beginning read it once: the others wait until the first one has it.
//
// Owner: the rank's CacheTier. Thread: engine.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "compute/kv/page_pool.h"
#include "engine/pages/page_reader.h"
#include "engine/pages/prefill_load.h"
#include "engine/tier/border_states.h"
#include "engine/tier/cache_tier_options.h"
#include "engine/tier/fetched_tokens.h"
#include "engine/tier/page_arrivals.h"
#include "engine/tier/peer_turns.h"
#include "engine/tier/read_times.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

class PagePrefetch {
 public:
  // Limit of the whole wait of a prompt for its pages, its turn included. One that a peer computes
  // may also take kMaxPeerFactor times the time of computing it here, or kMaxPeerToken a token
  // while the speed of prompts is not known.
  static constexpr Duration kMaxHold = std::chrono::seconds(300);
  static constexpr int kMaxTurn = 2;
  // Times that the pages of one request are read again, because they were evicted before it began
  // or found no room: so a pool that is too small for its requests does not only read.
  static constexpr int kMaxAgain = 2;
  // Times that one request waits for pages that another one has ordered.
  static constexpr int kMaxShared = 3;
  static constexpr int kMaxPeerFactor = 4;
  static constexpr Duration kMaxPeerToken = std::chrono::milliseconds(100);

  // All outlive it.
  PagePrefetch(const CacheTierOptions& options, PagePool& pages, const BorderStates& states,
               PageReader& reader, ReadFigures& figures);
  void start(const Clock& clock, std::function<void(PageId)> restored);

  // As those of CacheTier.
  bool ready(const Request& request, const Scheduler& scheduler);
  bool waits_again(const Request& request, const Scheduler& scheduler);
  bool restore(const SessionTokens& session, const Scheduler& scheduler, TimePoint until,
               std::function<void()> done);
  void take_read_pages(Scheduler& scheduler, EngineLoad load) { arrivals_.take(scheduler, load); }
  PerTier<int> note_begun(const Batch& batch);
  PerTier<int> fetched(RequestId id) const;
  void forget(RequestId id);

  // Notes a step; returns the seconds of a prompt's row, if the step had one.
  std::optional<double> note_step(const Batch& batch, Duration took);
  // Call it when the tree has the request's pages: none are reserved for it any more.
  void note_cached(RequestId id);

 private:
  using Refusal = PageArrivals::Refusal;
  struct PrefetchedRequest {
    std::shared_ptr<ReadTask> task;       // null: nothing is read for it
    std::shared_ptr<ReadTask> shared;     // another one's, which brings its pages; null: none
    int shared_end = 0;                   // tokens until which it does
    int num_shared = 0;                   // kMaxShared
    bool asked = false;                   // its pages were requested, or need not be
    std::optional<TimePoint> hold_until;  // max_hold()
    Duration may_take{};                  // its reading: StoragePrefetch::timeout
    TimePoint ordered{};                  // when its task was
    int num_reserved = 0;                 // pages of the pool for those that a peer computes
    int num_lacking = 0;                  // tokens whose pages the pool lacked before it asked
    int known_len = 0;                    // tokens that the cache had when it could wait in line
    int num_again = 0;                    // kMaxAgain
    Refusal refusal = Refusal::no;        // its pages came in vain
    int num_unseen = 0;                   // times that it was not looked for in the tree
    bool is_sent = false;                 // its prompt was sent to a peer that computes
    bool is_counted = false;              // as load: note_load()
    std::optional<PageWait> wait;         // nullopt: it is not held for pages
    FetchedTokens fetched;
    bool counts_found = true;  // the tokens with which it begins next are to be counted
    bool has_begun = false;    // it was in a batch
    PerTier<int> found{};      // those of `fetched` that it began with
  };

  // Tokens of a prompt's whole pages that the cache has: Scheduler::cached_len(), in_tree_len().
  struct HeldLens {
    int cached = 0, in_tree = 0;
  };

  bool is_ready(PrefetchedRequest& mine, const Request& request, const Scheduler& scheduler);
  bool ask(PrefetchedRequest& mine, const Request& request, const Scheduler& scheduler);
  void ask_again(PrefetchedRequest& mine);
  bool waits_for_room(const PrefetchedRequest& mine, const Request& request, int in_tree_len,
                      const Scheduler& scheduler);
  bool skips_look(PrefetchedRequest& mine, RequestId id);
  bool shares_task(PrefetchedRequest& mine, const Request& request, const HeldLens& held) const;
  static PageWait wait_of(const PrefetchedRequest& held);
  void note_load(PrefetchedRequest& mine, const Request& request, const Scheduler& scheduler);
  int num_pages_of(const Request& request) const;
  std::span<const TokenId> whole_pages(const Request& request) const;
  int num_lacking(const Request& request, const Scheduler& scheduler) const;
  HeldLens held_lens(const Request& request, const Scheduler& scheduler) const;
  std::shared_ptr<ReadTask> request_pages(const Request& request, const HeldLens& held,
                                          PrefetchedRequest& mine);
  std::shared_ptr<ReadTask> task_of(const CacheNamespace& name_space,
                                    std::span<const TokenId> tokens, size_t num_whole,
                                    const HeldLens& held) const;
  bool is_awaited(RequestId id) const;
  bool may_send(const Request& request);
  bool is_worth_waiting(const PrefetchedRequest& request, const ReadTask& task,
                        const Scheduler& scheduler) const;
  Duration max_hold(int num_tokens, bool is_sent) const;
  void give_up(PrefetchedRequest& request);
  void release(PrefetchedRequest& request);
  void count_found(const PrefetchedRequest& request, const PerTier<int>& found);
  void note_entered(const ReadTask& task, PageTier tier, int begin, int end);
  void note_refusal(const ReadTask& task, Refusal why);
  void end_task(const ReadTask& task);

  const CacheTierOptions& options_;
  const size_t page_tokens_;
  const BorderStates& states_;
  PageReader& reader_;
  ReadFigures& figures_;
  const Clock* clock_ = nullptr;
  std::unordered_map<RequestId, PrefetchedRequest> requests_;
  PeerTurns turns_;
  ReadTimes times_;
  PageArrivals arrivals_;
  PrefillLoad load_;
};

}  // namespace hocket
