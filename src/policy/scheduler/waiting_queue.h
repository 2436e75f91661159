// Requests that hold no page, in the order in which they will be tried. Bounded.
//
//   retracted, newest first | larger priority first, then
//                           |   fcfs: arrival      lpm: longest cached prefix, then arrival
//
// Looking up prefixes for every waiting request is dear, so above 128 of them lpm falls back to
// fcfs: logged once, counted. Owner: the scheduler.   Thread: engine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "base/result.h"
#include "policy/cache/radix_cache.h"
#include "policy/scheduler/request.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

inline constexpr int kMaxWaitingForLpm = 128;

class WaitingQueue {
 public:
  struct Limits {
    int max_requests = 0;
    int64_t max_tokens = 0;  // of prompts; 0: no limit
  };
  WaitingQueue(SchedulePolicy policy, Limits limits) : policy_(policy), limits_(limits) {}

  // Errors: queue_full when one more of so many tokens is too much.
  Result<void> check_room(int num_tokens) const;
  void push(std::unique_ptr<Request> request);
  // Before everybody else, whatever the limits: it has been accepted already.
  void push_retracted(std::unique_ptr<Request> request);

  // Puts the queue into the policy's order. Once a pass, before head().
  void sort(const RadixCache& cache);
  Request* head() { return entries_.empty() ? nullptr : entries_.front().request.get(); }
  std::unique_ptr<Request> take_head();
  // Null when no such request waits.
  std::unique_ptr<Request> remove(RequestId id);

  bool empty() const { return entries_.empty(); }
  int size() const { return static_cast<int>(entries_.size()); }
  int64_t num_tokens() const { return num_tokens_; }
  uint64_t num_lpm_fallbacks() const { return num_lpm_fallbacks_; }

 private:
  struct Entry {
    std::unique_ptr<Request> request;
    int64_t order = 0;  // rises with arrival; negative: retracted, the newest lowest
    int cached_len = 0;
    bool before(const Entry& other) const;
  };
  std::unique_ptr<Request> take(std::deque<Entry>::iterator entry);
  void sort_by_arrival();

  SchedulePolicy policy_;
  Limits limits_;
  std::deque<Entry> entries_;
  bool by_arrival_ = true;  // the order of entries_ now
  int64_t num_arrived_ = 0, num_retracted_ = 0;
  int64_t num_tokens_ = 0;
  uint64_t num_lpm_fallbacks_ = 0;
};

}  // namespace hocket
