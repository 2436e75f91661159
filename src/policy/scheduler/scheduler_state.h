// The inside of a Scheduler. schedule.cc makes a step, prefill.cc the part of its prompts
// (prefill_pass.h), retract.cc sends requests back when pages are short, preempt.cc removes those
// that lose their place, commit.cc takes the results, scheduler.cc has the public functions.
//
//   waiting (no page) -> chunked -> running -> leaving (rows of it are in flight)
//     -> finished (no page)
//
// A request is in exactly one of the five. The cache is declared before the lists of requests, so
// that requests are destroyed before the cache that their leases pin. Thread: engine.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "policy/cache/page_allocator.h"
#include "policy/cache/radix_cache.h"
#include "policy/scheduler/admission_pause.h"
#include "policy/scheduler/batch_pair.h"
#include "policy/scheduler/new_token_ratio.h"
#include "policy/scheduler/prefill_adder.h"
#include "policy/scheduler/running_batch.h"
#include "policy/scheduler/scheduler.h"
#include "policy/scheduler/state_slots.h"
#include "policy/scheduler/step_times.h"
#include "policy/scheduler/waiting_queue.h"

namespace hocket {

// PrefillPolicy::latency uses these.
struct LatencyPacing {
  StepTimes times;
  int chunk_tokens = 0;  // rows that the first prompt of the last pass was allowed
};

struct Scheduler::State {
  explicit State(SchedulerOptions scheduler_options);

  // scheduler.cc
  Result<void> add(RequestInput input);

  // schedule.cc
  void schedule();
  void choose();
  void ask_held();
  NextStepForecast forecast_next_step() const;
  void add_decode_rows();
  void launch();
  void list_answers();
  int max_drafts(const Request& request) const;
  void add_drafts(Slice& slice, std::span<const TokenId> drafts);
  void add_rows(Request& request, int len);
  void lengthen(Slice& slice, int num_rows);
  void take_pages_to(Request& request, int end);
  void take_pages(Request& request, int num_pages);
  int prepare_decode();
  int num_answer_rows() const;

  // retract.cc
  int retract_until_decode_fits();
  std::unique_ptr<Request> take_newest_chunked();
  std::unique_ptr<Request> take_newest();
  void retract_for_memory(std::unique_ptr<Request> request);
  void retract(std::unique_ptr<Request> request);
  int undo_steps(const Error& why);
  bool put_back(std::unique_ptr<Request> request, const Error& why);

  // prefill.cc
  void prefill();
  PrefillBudget prefill_budget() const;
  bool reserve_lists(Request& request);
  int chunk_tokens() const;
  StepShape decode_shape() const;

  // preempt.cc
  void apply_timeouts();
  Error prepare_displacement(const Request& worse);
  void displace(std::unique_ptr<Request> request, Error why);

  // windows.cc
  bool has_windows() const { return options.window.bounded(); }
  int window_rows() const;
  int num_available_window_pages() const;
  Result<void> check_window(int prompt_len, int max_new_tokens) const;
  int max_window_pages(const Request& request, int num_matched = 0) const;
  static int first_own_window_page(const Request& request);
  static int num_released_window_pages(const Request& request);
  int reserved_window_pages(const Request& request) const;
  int window_room(const Request* request) const;
  void take_window_pages(Request& request, int num_pages);
  void begin_window(Request& request, PrefixMatch& match);
  void slide_window(Request& request, int end);
  void lease_window(Request& request);
  void free_window(Request& request);
  void check_windows() const;

  // commit.cc
  void commit(std::span<const SampledToken> sampled);
  void take_samples(Slice& slice, std::span<const SampledToken> sampled);
  void accept(Request& request, const SampledToken& sampled);
  int accept_forced(Request& request, const SampledToken& sampled);
  void cache_pages(Request& request, int num_tokens);
  void free_pages(Request& request);
  void fail_request(Request& request, Error why) const;
  void finish(std::unique_ptr<Request> request);
  void close(std::unique_ptr<Request> request);
  void remove_ended();

  Batch& batch() { return batches.newest(); }  // the one that schedule() fills
  int page_tokens() const { return pages.page_tokens(); }
  int num_active() const { return running.size() + static_cast<int>(chunked.size()); }
  bool makes_mixed_batches() const {
    return options.prefill_policy != PrefillPolicy::prefill_first;
  }
  int num_available_pages() const { return pages.num_free() + cache.num_evictable_pages(); }
  // Returns how many pages can be taken of every kind.
  int num_takeable_pages() const {
    const int available = num_available_pages();
    return has_windows() ? std::min(available, num_available_window_pages()) : available;
  }
  int64_t available_tokens() const {
    return static_cast<int64_t>(num_available_pages()) * page_tokens();
  }
  int64_t num_used_tokens() const {
    return static_cast<int64_t>(pages.num_pages()) * page_tokens() - available_tokens();
  }
  double token_usage() const {
    return static_cast<double>(num_used_tokens()) /
           (static_cast<double>(pages.num_pages()) * page_tokens());
  }
  int num_private_pages() const;
  StateSlots::Held held_states() const;

  SchedulerOptions options;
  PageAllocator pages, windows;
  StateSlots states;
  RadixCache cache;
  Sessions sessions;
  WaitingQueue waiting;
  // Requests whose prefill is partly computed or under way, in order of admission.
  std::vector<std::unique_ptr<Request>> chunked;
  RunningBatch running;
  std::vector<std::unique_ptr<Request>> leaving;  // ended requests with rows in flight
  std::vector<std::unique_ptr<Request>> finished;

  BatchPair batches;
  // True: nothing is scheduled until the steps in flight are committed, because a request must lose
  // its pages, or a prompt needs a slot for its state.
  bool must_settle = false;
  // True: the last pass of prompts was short because window pages are, so answers have the next.
  bool short_of_windows = false;
  NewTokenRatio ratio;
  AdmissionPause pause;
  TimePoint now{};                   // time of the last schedule() or commit()
  std::vector<AnswerDrafts> offers;  // answers in the batch of the last schedule()
  WaitingQueue::Progress progress;
  LatencyPacing pacing;
  SchedulerCounters counters;
};

}  // namespace hocket
