// Decides who runs in the next step. Pure bookkeeping: no clock (times are passed in), no device,
// no lock.
//
//   add -> waiting -> schedule() -> prefilling (chunks) -> running (decode) -> commit() -> finished
//                         ^------------------ retracted -------------------'
//
// Invariants, checked when idle: free + cached + private = all pages; no lease without a request.
// Thread: engine.   Source: docs/contracts/engine.md.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "policy/cache/page_allocator.h"
#include "policy/cache/radix_cache.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/outside.h"
#include "policy/scheduler/prefix_order.h"
#include "policy/scheduler/request.h"
#include "policy/scheduler/schedule_policy.h"

namespace hocket {

// Priorities of requests. Off: a given priority is ignored, or refused.
struct PriorityOptions {
  bool enabled = false;
  bool low_values_first = false;
  bool preempt = true;            // running requests of lower priority give way
  int preemption_threshold = 10;  // by more than this, strictly
  bool refuse_when_disabled = false;
};

struct SchedulerOptions {
  int num_pages = 0;
  int page_tokens = 32;
  int max_running_requests = 256;
  int max_queued_requests = 1024;
  int64_t max_queued_tokens = 0;   // 0: no limit
  int chunk_tokens = 2048;         // -1: prompts are never cut
  int max_prefill_tokens = 16384;  // of one pass; >= chunk_tokens
  int max_chunked_requests = 1;    // prompts that are computed in part at the same time
  PrefillPolicy prefill_policy = PrefillPolicy::prefill_first;
  Duration itl_goal{};            // of PrefillPolicy::latency: between two tokens of a request; > 0
  double prompt_share = 0;        // of a step's time for prompts, whatever itl_goal; below 1
  double conservativeness = 1.0;  // of the memory reserved for running requests
  SchedulePolicy policy = SchedulePolicy::fcfs;
  bool prefix_cache = true;
  EvictionPolicy eviction = EvictionPolicy::lru;  // of the prefix cache
  KvEventChannel* kv_events = nullptr;            // of the prefix cache; outlives the scheduler
  int context_length = 0;
  std::vector<TokenId> eos_ids;  // the model's end tokens
  int vocab_size = 0;
  PriorityOptions priorities;
  Duration waiting_timeout{};    // in the queue at one go; 0: none
  Duration running_timeout{};    // since first scheduled, retractions included; 0: none
  int prefill_max_requests = 0;  // of one pass; 0: no limit
  InBatchSharing in_batch;
  int max_overtaken = 512;     // a waiting request is next after so many who came later
  uint64_t seed = 0;           // of the policy `random`
  Outside* outside = nullptr;  // outlives the scheduler; null: nobody has a say
};

// Settings with which some prompt could never be computed, or nobody run. Errors: bad_value, naming
// the flags.
Result<void> check(const SchedulerOptions& options);

// Numbers for logs, metrics and /get_load; all of them now, not averages.
struct SchedulerStats {
  int num_running = 0, num_waiting = 0;
  int num_held = 0;  // not ready to stand in line (Outside::ready); not in num_waiting
  int64_t num_waiting_tokens = 0;  // of prompts, the held ones' included
  int num_pages = 0, num_free_pages = 0, num_cached_pages = 0, num_private_pages = 0;
  int64_t num_used_tokens = 0;  // tokens in pages that are neither free nor evictable
  double token_usage = 0;       // of the pool
  double new_token_ratio = 0;
  uint64_t num_retracted_total = 0, num_evicted_pages_total = 0;   // retracted: for want of memory
  uint64_t retracted_input_total = 0, retracted_output_total = 0;  // tokens of those
  uint64_t num_preempted_total = 0;         // put back to the queue for a larger priority
  uint64_t num_timed_out_total = 0;         // ended by a timeout
  uint64_t num_displaced_total = 0;         // lost their place in a full queue to a larger priority
  uint64_t num_policy_fallbacks_total = 0;  // passes in which the policy fell back to fcfs
  uint64_t num_prefix_waits_total = 0;      // times that a prompt let a pass go for its beginning
  uint64_t prompt_tokens_total = 0, cached_tokens_total = 0, generated_tokens_total = 0;
  uint64_t forced_tokens_total = 0;  // of those generated, taken without a step of their own
  // PrefillPolicy::latency: prompt tokens that the last pass beside running requests was allowed
  // (0: none yet), and the mean of |step time / its prediction - 1| over some sixty steps.
  int itl_chunk_tokens = 0;
  double step_time_error = 0;
};

// What the next schedule() may come to. Asked while a step is under way, it looks past that step's
// commit; a request that ends there by a token is not foreseen, nor is one that comes.
struct Prospect {
  int num_decoding = 0;    // requests that go on, a row each and those of forced tokens
  bool continues = false;  // a prompt in chunks goes on
  bool begins = false;     // a prompt may begin, as far as is known
  double token_usage = 0;  // of the pool
};

// What a request is at, for who watches.
struct RequestGlance {
  // held: not ready to stand in line; prefilling: part of its prompt is done or under way.
  enum class Where : uint8_t { held, waiting, prefilling, running };
  RequestId id{};
  Where where = Where::waiting;
  int prompt_tokens = 0, computed_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int num_retractions = 0;
};

class Scheduler {
 public:
  explicit Scheduler(SchedulerOptions options);
  ~Scheduler();

  // Errors: queue_full; invalid_request (a priority while they are refused);
  // context_length_exceeded; request_too_big (can never fit in all pages together); those of
  // Outside::ready; out_of_memory. After an error nothing has changed here.
  Result<void> add(RequestInput input);
  // Takes effect at once: a waiting request is gone; a running one leaves the schedule now and
  // gives its pages back when the step in flight (if any) is committed. Returns false for an
  // unknown or finished id. The aborted request comes out of take_finished().
  bool abort(RequestId id, FinishReason reason, Error error);

  // The next step's rows, pages assigned; empty when there is nothing to do. Exactly one commit()
  // follows each non-empty batch, in the order of their schedule(); the reference is valid until
  // the schedule() after it.
  //
  // Overlapped: one batch may still be uncommitted. Rows may then stand for tokens that it has yet
  // to sample (Slice::future), and a request that turns out to have ended has a row too many, which
  // commit() drops. Whoever has to lose pages for this (retraction, preemption) must have all his
  // tokens first: the batch comes back empty, and the one in flight is to be committed before
  // schedule() is asked again. Steps must be computed in this order, one after the other: pages are
  // given away while a step that reads them is under way, and written by later ones only.
  const Batch& schedule(TimePoint now);
  // How long the step took, before its commit(); PrefillPolicy::latency learns from it.
  void note_duration(const Batch& batch, Duration took);
  // Appends tokens, tests for the end (abort, no usable token, length, stop token), hands pages to
  // the tree. sampled: one for each slice with samples == true, in slice order. Sets
  // Slice::accepted.
  void commit(const Batch& batch, std::span<const SampledToken> sampled, TimePoint now);

  // Requests that ended since the last call, oldest first; they own no page any more.
  std::vector<std::unique_ptr<Request>> take_finished();
  // Whether take_finished() would return any; no allocation.
  bool has_finished() const;

  // Allocates nothing.
  Prospect prospect() const;
  bool idle() const;
  SchedulerStats stats() const;
  // Those that run, those whose prompts are under way, those that wait, those that are held; as
  // many as there is room for. How many were written. Allocates nothing.
  size_t glance(std::span<RequestGlance> out) const;
  // Frees all cached pages that no request uses; false, and nothing freed, while a request runs or
  // waits.
  bool flush_cache();
  // A bug (stops) if any invariant is broken. Call when idle.
  void check_integrity() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
