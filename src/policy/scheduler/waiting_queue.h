// The queue of requests that hold no page, and the order in which they are tried. It is bounded.
//
// It is always sorted by priority (larger first), then retracted requests (newest first), then
// arrival. A pass asks for one head() after the other and stops at the first that does not fit:
//
//   fcfs          in that order
//   lof           most new tokens first
//   random        drawn among the largest priority; stays the head until it runs or leaves
//   cache-aware   the first 128 by prefix_order.h; lpm and hrrn are fcfs while more than 128 wait,
//                 and all of them without a cache: logged once, counted
//   grouped       the head of the group whose turn it is (request_groups.h)
//
// No request starves: once as many requests have left the queue as were in it at its arrival, plus
// max_overtaken, the oldest is next (among those of the largest priority). So among equal
// priorities, at most max_overtaken later requests overtake it. A head that may not run yet for a
// reason outside of the queue is skipped until the next pass, and the next request is the head. For
// the overtaking limit, a skipped request counts as if it had left the queue, but its own limit
// keeps counting, so it may be overdue when it can run. A pass ends after 128 skips. Held requests
// do not wait in line yet: they only count in the limits. Cost of a pass: 128 prefix look-ups, or
// one step through the groups; never all waiting requests. Owner: the scheduler. Thread: engine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "base/result.h"
#include "core/queue_limits.h"
#include "policy/cache/radix_cache.h"
#include "policy/scheduler/prefix_order.h"
#include "policy/scheduler/request.h"
#include "policy/scheduler/request_groups.h"
#include "policy/scheduler/schedule_policy.h"

namespace hocket {

// The limit of requests that wait: of one rank, and of all together (engine/queue_places.h).
inline constexpr QueueLimit<int64_t, int64_t> kWaitingLimit{
    "{} requests are waiting already, the limit is {}",
    "try again later, or raise --max-queued-requests"};

inline constexpr int kMaxPrefixLookups = 128;
inline constexpr int kMaxSkipped = 128;         // in one pass
inline constexpr int kMaxForecastPrompts = 16;  // prompts that a forecast looks up

class WaitingQueue {
 public:
  struct Options {
    SchedulePolicy policy = SchedulePolicy::fcfs;
    int max_requests = 0;
    int64_t max_tokens = 0;  // sum over prompts; 0: no limit
    bool prefix_cache = true;
    InBatchSharing in_batch;
    int max_overtaken = 512;
    uint64_t seed = 0;  // for the policy random
  };
  // The server's progress, passed in by the scheduler.
  struct Progress {
    uint64_t cache_generation = 0;  // changes when the cache may have changed
    uint64_t rows_total = 0;
  };
  explicit WaitingQueue(const Options& options);

  // Checks if a request of `num_tokens` may enter. If the queue is full, `leaving` (may be null) is
  // counted as gone. Errors: queue_full.
  Result<void> check_room(int num_tokens, const Request* leaving) const;
  // Returns true if the queue holds as many requests as are allowed.
  bool full() const { return !use_of_requests().has_room(); }
  // Returns the newest request of the smallest priority, if that is below `priority` and it never
  // ran; else null.
  const Request* newest_below_priority(int priority) const;

  // Adds a request that waits since `queued`. If an allocation fails, push() and hold() throw and
  // change nothing.
  void push(std::unique_ptr<Request> request, TimePoint queued, uint64_t rows_total);
  // Puts a request before all others of its priority, beyond the limits, since it was accepted
  // already.
  void push_retracted(std::unique_ptr<Request> request, TimePoint now);

  // Held requests, oldest first. take_held() removes one; push() then lets it wait in line, at its
  // old place if it had one.
  void hold(std::unique_ptr<Request> request, TimePoint now);
  const std::deque<std::unique_ptr<Request>>& held() const { return held_; }
  std::unique_ptr<Request> take_held(int index);

  // Call once a pass, before head(); no request is skipped then. During a pass only heads leave,
  // and only requests of smaller priority are added.
  void begin_pass(const RadixCache& cache, const Progress& progress);
  // Returns the next request to try; null when none is left in this pass.
  Request* head();
  std::unique_ptr<Request> take_head();
  // Holds the head. If an allocation fails, it throws and changes nothing. Precondition: head() is
  // not null.
  void hold_head();
  // Skips the head for this pass. Precondition: head() is not null.
  void skip_head();
  // Call when an admitted request stops running; does nothing without groups.
  void left(Request& request) {
    if (groups_ && request.group != nullptr) groups_->left(request);
  }
  // Call when a head that was taken is admitted with `num_rows` rows to compute.
  void admitted(Request& request, int num_rows) {
    request.admitted_as = ++num_admitted_;
    request.queue_place.reset();
    if (groups_) groups_->admitted(request, request.num_retractions == 0 ? num_rows : 0);
  }

  // Removes a waiting or held request; returns null when there is none of this id.
  std::unique_ptr<Request> remove(RequestId id);
  // Removes a request, waiting or held, that was queued before `limit`; returns null when there is
  // none. Looks at all of them only when the one queued first may have left since.
  std::unique_ptr<Request> take_queued_before(TimePoint limit);

  // Returns a request in the order of the queue, which may differ from the order of trial.
  const Request& at(int index) const { return *entries_[static_cast<size_t>(index)].request; }

  // The requests that wait in line.
  bool empty() const { return entries_.empty(); }
  int size() const { return static_cast<int>(entries_.size()); }
  int num_held() const { return static_cast<int>(held_.size()); }
  // Sum over the prompts of waiting and held requests.
  int64_t num_tokens() const { return num_tokens_; }
  uint64_t num_fallbacks() const { return num_fallbacks_; }
  // Returns how many rows of waiting prompts the cache lacks, at most `most`. Only the
  // first kMaxForecastPrompts prompts are looked up; further ones count whole.
  int64_t num_uncached_rows(const RadixCache& cache, int64_t most) const;
  // Under shortest_prefill_first: returns the rows, in whole pages, of the requests shorter than
  // `less_than` rows, as many as fit into `max_total` rows. Other policies: 0.
  int num_short_rows(int less_than, int max_total, int page_tokens);

 private:
  QueueUse use_of_requests() const {
    return {.used = size() + num_held(), .max = options_.max_requests};
  }
  struct Entry {
    std::unique_ptr<Request> request;
    int cached_len = 0;
    uint64_t cached_at = ~uint64_t{0};  // Progress::cache_generation for which cached_len is right
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
  std::unique_ptr<RequestGroups> groups_;  // for grouped policies
  std::set<ByLength> by_length_;           // for lof
  Request* drawn_ = nullptr;               // for random
  std::mt19937_64 random_;                 // for random
  // Cache-aware policies keep here the requests looked up in this pass and not taken.
  std::vector<PrefixCandidate> by_prefix_;
  bool fallen_back_ = false;           // for cache-aware policies: this pass is fcfs
  const RadixCache* cache_ = nullptr;  // set by begin_pass()
  Progress progress_;
  Request* head_ = nullptr;  // the chosen head; null: not chosen yet
  uint64_t pass_ = 1;
  int num_skipped_ = 0;    // in this pass
  size_t num_passed_ = 0;  // the first entries that are all skipped

  int64_t num_arrived_ = 0, num_requeued_ = 0, num_admitted_ = 0;
  uint64_t num_left_ = 0;           // requests that left in whatever way, or were skipped
  uint64_t num_stepped_aside_ = 0;  // waiting entries that were skipped and count as left already
  int64_t num_tokens_ = 0;
  uint64_t num_fallbacks_ = 0;
  TimePoint first_queued_ = TimePoint::max();  // no waiting or held request was queued before this
};

}  // namespace hocket
