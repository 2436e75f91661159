// Requests that hold no page, and the order in which they are tried. Bounded.
//
// Always sorted by priority (larger first), then the retracted (newest first), then arrival. A pass
// asks head() for one after the other and stops at the first that does not fit:
//
//   fcfs          in that order
//   lof           most new tokens first
//   random        drawn among the largest priority; stays the head until it runs or leaves
//   cache-aware   the first 128 by prefix_order.h; lpm and hrrn are fcfs while more than 128 wait,
//                 and all of them without a cache: logged once, counted
//   grouped       the head of the group whose turn it is (request_groups.h)
//
// No rule starves anybody: once as many requests have left the queue as were in it at its arrival,
// and max_overtaken more, the oldest is next (among those of the largest priority). So, priorities
// apart, nobody is overtaken by more than max_overtaken.
// A head that may not run yet for a reason outside of the queue is skipped: the next one is head,
// until the next pass. For the others it counts as having left when it is first skipped; its own
// time goes on, so it is overdue, perhaps, as soon as it may run. A pass ends after 128 skips.
// The held do not stand in line yet: they count in the limits, and in nothing else.
// Cost of a pass: 128 prefix look-ups, or one step through the groups; never all that wait.
// Owner: the scheduler.   Thread: engine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "policy/cache/radix_cache.h"
#include "policy/scheduler/prefix_order.h"
#include "policy/scheduler/request.h"
#include "policy/scheduler/request_groups.h"
#include "policy/scheduler/schedule_policy.h"

namespace hocket {

inline constexpr int kMaxPrefixLookups = 128;
inline constexpr int kMaxSkipped = 128;  // in one pass

class WaitingQueue {
 public:
  struct Options {
    SchedulePolicy policy = SchedulePolicy::fcfs;
    int max_requests = 0;
    int64_t max_tokens = 0;  // of prompts; 0: no limit
    bool prefix_cache = true;
    InBatchSharing in_batch;
    int max_overtaken = 512;
    uint64_t seed = 0;  // of random
  };
  // What has happened so far in the server.
  struct Progress {
    uint64_t cache_generation = 0;  // changes when the cache may hold something else
    uint64_t rows_total = 0;
  };
  explicit WaitingQueue(const Options& options);

  // Errors: queue_full when one more of so many tokens is too much, even if `leaving` (may be null)
  // went for it.
  Result<void> check_room(int num_tokens, const Request* leaving) const;
  // As many as are allowed are here.
  bool full() const { return size() + num_held() >= options_.max_requests; }
  // The newest of the smallest priority, where that is below `priority` and it never ran; else
  // null.
  const Request* worse_than(int priority) const;

  // queued: since when it waits. If an allocation fails, push() and hold() throw and change
  // nothing.
  void push(std::unique_ptr<Request> request, TimePoint queued, uint64_t rows_total);
  // Before all others of its priority, whatever the limits: it has been accepted already.
  void push_retracted(std::unique_ptr<Request> request, TimePoint now);

  // Oldest first; push() lets one that was taken stand in line.
  void hold(std::unique_ptr<Request> request, TimePoint now);
  const std::deque<std::unique_ptr<Request>>& held() const { return held_; }
  std::unique_ptr<Request> take_held(int index);

  // Once a pass, before head(). During a pass only heads leave, and only smaller priorities come.
  // Nobody is skipped any more.
  void begin_pass(const RadixCache& cache, const Progress& progress);
  // Next to be tried; null when nobody is left for this pass.
  Request* head();
  std::unique_ptr<Request> take_head();
  // Pre: head() is not null.
  void skip_head();
  // An admitted request runs no more; told only of those whose group counts.
  void left(Request& request) {
    if (groups_ && request.group != nullptr) groups_->left(request);
  }
  void admitted(Request& request, int num_rows) {
    if (groups_) groups_->admitted(request, request.num_retractions == 0 ? num_rows : 0);
  }

  // Waiting or held; null when there is no such request.
  std::unique_ptr<Request> remove(RequestId id);
  // One, waiting or held, that came before `limit`; null when there is none. Looks at all that wait
  // only when the one that came first may have left since.
  std::unique_ptr<Request> take_queued_before(TimePoint limit);

  // In the order of the queue, which is not always that of their turns.
  const Request& at(int index) const { return *entries_[static_cast<size_t>(index)].request; }

  // Those that stand in line.
  bool empty() const { return entries_.empty(); }
  int size() const { return static_cast<int>(entries_.size()); }
  int num_held() const { return static_cast<int>(held_.size()); }
  int64_t num_tokens() const { return num_tokens_; }  // of the prompts of all, held or not
  uint64_t num_fallbacks() const { return num_fallbacks_; }
  // shortest_prefill_first: rows of those, of less than `less_than` rows each, that `most_total`
  // rows have room for; in whole pages. Other policies: 0.
  int num_short_rows(int less_than, int most_total, int page_tokens);

 private:
  struct Entry {
    std::unique_ptr<Request> request;
    int cached_len = 0;
    uint64_t cached_at = ~uint64_t{0};  // generation that cached_len is of
  };
  using Entries = std::deque<Entry>;
  using ByLength = std::tuple<int64_t, int, int64_t, Request*>;

  Entries::iterator find(const Request& request);
  void note_arrival(Request& request, TimePoint queued);
  void insert(std::unique_ptr<Request> request, TimePoint queued);
  std::unique_ptr<Request> take(Entries::iterator entry);
  void forget_choice(const Request& request);
  Request* choose();
  Request* draw();
  void look_up_prefixes();
  void fall_back();
  static ByLength by_length(Request& request);
  bool skipped(const Request& request) const { return request.skipped_in == pass_; }
  bool overdue(const Request& request) const { return num_left_ >= request.overdue_at; }

  Options options_;
  Entries entries_;
  std::deque<std::unique_ptr<Request>> held_;
  std::unique_ptr<RequestGroups> groups_;   // grouped policies
  std::set<ByLength> by_length_;            // lof
  Request* drawn_ = nullptr;                // random
  std::mt19937_64 random_;                  // random
  std::vector<PrefixCandidate> by_prefix_;  // cache-aware: looked up in this pass and not taken
  bool fallen_back_ = false;                // cache-aware: this pass is fcfs
  const RadixCache* cache_ = nullptr;       // of this pass
  Progress progress_;
  Request* head_ = nullptr;  // as chosen; null: not chosen yet
  uint64_t pass_ = 1;
  int num_skipped_ = 0;    // in this pass
  size_t num_passed_ = 0;  // of the first entries: skipped, all of them

  int64_t num_arrived_ = 0, num_requeued_ = 0;
  uint64_t num_left_ = 0;           // in whatever way, or were skipped
  uint64_t num_stepped_aside_ = 0;  // entries that were skipped, and count as left already
  int64_t num_tokens_ = 0;
  uint64_t num_fallbacks_ = 0;
  TimePoint first_queued_ = TimePoint::max();  // nobody came to wait before this
};

}  // namespace hocket
