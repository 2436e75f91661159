// The inside of a Scheduler. Bodies: schedule.cc chooses the rows, preempt.cc sends requests away,
// commit.cc takes the results, scheduler.cc is the door.
//
//   waiting (no page) -> chunked (at most one) -> running -> finished (no page)
//
// A request is in exactly one of the four. Members in order of birth: requests die before the cache
// their leases pin. Thread: engine.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "policy/cache/page_allocator.h"
#include "policy/cache/radix_cache.h"
#include "policy/scheduler/new_token_ratio.h"
#include "policy/scheduler/prefill_adder.h"
#include "policy/scheduler/running_batch.h"
#include "policy/scheduler/scheduler.h"
#include "policy/scheduler/waiting_queue.h"

namespace hocket {

struct Scheduler::State {
  explicit State(SchedulerOptions scheduler_options);

  // schedule.cc
  void schedule();
  void prefill();
  void continue_chunked(PrefillAdder& adder);
  PrefillCandidate candidate(const Request& request, const PrefixMatch& match) const;
  AddResult admit(PrefillAdder& adder);
  void start(PrefixMatch match, int len);
  void add_rows(Request& request, int len);
  int prepare_decode();
  int retract_until_decode_fits();
  void retract(std::unique_ptr<Request> request);
  void take_pages(Request& request, int num_pages);

  // preempt.cc
  void apply_timeouts();
  void displace(std::unique_ptr<Request> request);
  bool preempt_for_head(PrefillAdder& adder);

  // commit.cc
  void commit(std::span<const SampledToken> sampled);
  void accept(Request& request, const SampledToken& sampled);
  void share(Request& request);
  void release(Request& request);
  void fail_request(Request& request, Error why) const;
  void retire(std::unique_ptr<Request> request);
  void retire_finished();

  int page_tokens() const { return pages.page_tokens(); }
  int num_active() const { return running.size() + (chunked ? 1 : 0); }
  int num_available_pages() const { return pages.num_free() + cache.num_evictable_pages(); }
  int64_t available_tokens() const {
    return static_cast<int64_t>(num_available_pages()) * page_tokens();
  }
  int num_private_pages() const;
  bool in_batch(const Request& request) const;

  SchedulerOptions options;
  PageAllocator pages;
  RadixCache cache;
  WaitingQueue waiting;
  std::unique_ptr<Request> chunked;  // part of its prefill is done or in this pass, more is to come
  RunningBatch running;
  std::vector<std::unique_ptr<Request>> finished;

  Batch batch;
  bool in_flight = false;  // batch waits for its commit
  NewTokenRatio ratio;
  // No newcomer fits: not tried again until something changes, or some decode steps have lowered
  // the ratio.
  bool full = false;
  int steps_full = 0;
  TimePoint now{};                // of the last schedule() or commit()
  int num_decoding = 0;           // the first of `running`, whose next pages are taken: rows of
                                  // this batch to come
  int num_decodable = 0;          // running requests that are not in this batch's prefill
  uint64_t cache_generation = 0;  // changes when the tree may hold something else
  uint64_t rows_total = 0;        // computed so far
  std::vector<const Request*> preempted;  // in this pass

  uint64_t num_retracted_total = 0, num_preempted_total = 0;
  uint64_t num_timed_out_total = 0, num_displaced_total = 0;
  uint64_t prompt_tokens_total = 0, cached_tokens_total = 0, generated_tokens_total = 0;
};

}  // namespace hocket
