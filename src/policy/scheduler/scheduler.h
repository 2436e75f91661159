// Decides which requests run in the next step. Pure bookkeeping: no clock (times are passed in), no
// device, no lock.
//
//   add -> waiting -> schedule() -> prefilling (chunks) -> running (decode) -> commit() -> finished
//                         ^------------------ retracted -------------------'
//
// Invariants, checked when idle: free + cached + private = all pages; no lease without a request.
// Thread: engine.   Source: docs/contracts/engine.md.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "policy/cache/page_allocator.h"
#include "policy/cache/radix_cache.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/prefix_order.h"
#include "policy/scheduler/request.h"
#include "policy/scheduler/schedule_policy.h"
#include "policy/scheduler/scheduler_counters.h"
#include "policy/scheduler/scheduler_hooks.h"

namespace hocket {

// Rules for the priorities of requests. If not enabled, a request's priority is ignored, or the
// request is refused.
struct PriorityOptions {
  bool enabled = false;
  bool low_values_first = false;
  bool preempt = true;            // running requests of lower priority give way
  int preemption_threshold = 10;  // to a priority larger by more than this
  bool refuse_when_disabled = false;
};

struct SchedulerOptions {
  int num_pages = 0;
  int page_tokens = 32;
  // Models with delta nets: slots of states, at least two for each running request; 0: no such
  // model. A slot for the tokens behind the last state comes with each running request.
  int num_states = 0;
  int state_tokens = kDeltaBlock;    // tokens between two states; others in tests only
  int cached_state_interval = 4096;  // a long prompt leaves a state every so many tokens
  // Models with window layers: their pages, and what such a layer sees; without a bound: no such
  // model. At least enough for two requests, or num_pages if that is less.
  int num_window_pages = 0;
  KeyReach window;
  int max_forced = kMaxForcedTokens;  // tokens that a grammar forces at once
  int max_running_requests = 256;
  // Most rows of answers in a step, drafts and forced tokens included. A smaller number is raised
  // to max_running_requests.
  int max_answer_rows = 0;
  int max_queued_requests = 1024;
  int64_t max_queued_tokens = 0;   // 0: no limit
  int chunk_tokens = 2048;         // -1: prompts are never cut
  int max_prefill_tokens = 16384;  // rows of one pass; >= chunk_tokens
  int max_chunked_requests = 1;    // prompts that may be partly computed at the same time
  PrefillPolicy prefill_policy = PrefillPolicy::prefill_first;
  // PrefillPolicy::latency uses these: longest time between two tokens of a request (> 0), and the
  // least share of a step's time that prompts get, even if itl_goal is then missed (below 1).
  Duration itl_goal{};
  double prompt_share = 0;
  double conservativeness = 1.0;  // factor of the memory reserved for running requests
  SchedulePolicy policy = SchedulePolicy::fcfs;
  bool prefix_cache = true;
  // false: the rows of an answer have other bits than those of a prompt with the same tokens, so
  // the cache gets the pages of prompts, and of an answer only what AbsorbedRows makes equal.
  bool cache_whole_answers = true;
  std::vector<TokenId> answer_begins;  // open an answer in the model's chat format; may be empty
  EvictionPolicy eviction = EvictionPolicy::lru;  // for the prefix cache
  KvEventChannel* kv_events = nullptr;            // for the prefix cache; outlives the scheduler
  int context_length = 0;
  std::vector<TokenId> eos_ids;  // the model's end tokens
  int vocab_size = 0;
  PriorityOptions priorities;
  Duration waiting_timeout{};  // longest wait in the queue without a run between; 0: no limit
  // Longest time since first scheduled, retractions included; 0: no limit.
  Duration running_timeout{};
  Duration session_timeout{};    // time for which an idle session is kept (sessions.h); 0: none is
  int prefill_max_requests = 0;  // in one pass; 0: no limit
  InBatchSharing in_batch;
  int max_overtaken = 512;          // later requests that may start before a waiting one
  uint64_t seed = 0;                // for the policy `random`
  SchedulerHooks* hooks = nullptr;  // outlives the scheduler; null: no questions are asked
};

// Refuses settings with which some prompt could never be computed, or no request could run. Errors:
// bad_value; the message names the flag.
Result<void> check(const SchedulerOptions& options);

// Numbers for logs, metrics and /get_load; they are current values, not averages.
struct SchedulerStats : SchedulerCounters {
  int num_running = 0, num_waiting = 0;
  int num_sessions = 0;
  int num_held = 0;  // not ready to stand in line (SchedulerHooks::ready); not in num_waiting
  int64_t num_waiting_tokens = 0;  // prompt tokens, held requests included
  int num_pages = 0, num_free_pages = 0, num_cached_pages = 0, num_private_pages = 0;
  // Slots of states: all, free ones, and those in the tree.
  int num_states = 0, num_free_states = 0, num_cached_states = 0;
  uint64_t num_evicted_states_total = 0;
  // Pages of window layers: all, free ones, and those in the tree.
  int num_window_pages = 0, num_free_window_pages = 0, num_cached_window_pages = 0;
  uint64_t num_evicted_window_pages_total = 0;
  int64_t num_used_tokens = 0;  // tokens in pages that are neither free nor evictable
  double token_usage = 0;       // num_used_tokens as a share of the pool
  double new_token_ratio = 0;
  uint64_t num_evicted_pages_total = 0;     // pages evicted from the cache
  uint64_t num_policy_fallbacks_total = 0;  // passes in which the policy fell back to fcfs
  // PrefillPolicy::latency sets these: the prompt tokens allowed in the last pass beside running
  // requests (0: none yet), and the mean of |step time / its prediction - 1| over some sixty steps.
  int itl_chunk_tokens = 0;
  double step_time_error = 0;
};

// Returns the most pages of window layers that a request holds while it decodes, or prefills by a
// page at a time.
int window_pages_of_request(const SchedulerOptions& options);

// A forecast of the next schedule(). If asked while a step is under way, it looks past that step's
// commit, but foresees neither a request that a token ends there nor one that arrives.
struct NextStepForecast {
  int num_decoding = 0;    // running requests that decode on
  bool continues = false;  // a prompt in chunks goes on
  bool begins = false;     // a prompt may begin, as far as is known
};

// The state of one request, for the server's page.
struct RequestSnapshot {
  // held: not ready to stand in line. prefilling: part of its prompt is computed or under way.
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

  // Accepts a request. Errors: queue_full; invalid_request (a priority while they are refused);
  // context_length_exceeded; request_too_big (can never fit in all pages together); those of
  // SchedulerHooks::ready; out_of_memory. After an error the scheduler is unchanged.
  Result<void> add(RequestInput input);
  // Ends a request at once: a waiting one leaves the queue; a running one leaves the schedule and
  // gives its pages back when its steps in flight are committed. Returns false for an unknown or
  // finished id. The aborted request comes out of take_finished().
  bool abort(RequestId id, FinishReason reason, Error error);

  // Returns the next step's rows, with pages assigned; empty when there is nothing to do. Exactly
  // one commit() follows each non-empty batch, in the order of schedule(). The reference is valid
  // until the first schedule() after its commit.
  //
  //   overlapped:  schedule(A) schedule(B) commit(A) schedule(C) commit(B) ...
  //
  // One batch may be uncommitted. Then rows may stand for tokens that it has yet to sample
  // (Slice::future), and a request that turns out to have ended has a row too many, which commit()
  // drops. A request can lose its pages (retraction, preemption) only when all its tokens are
  // known: the batch is then empty, and the one in flight must be committed before schedule() is
  // called again; so it is if a prompt lacks a slot for its state. Steps must be computed in this
  // order, one after the other: pages are given away while a step that reads them is under way, and
  // only later steps write them.
  const Batch& schedule(TimePoint now);
  // Says how long the step took; call before its commit(). PrefillPolicy::latency learns from it.
  void note_duration(const Batch& batch, Duration took);
  // Appends sampled tokens, ends requests (abort, no usable token, length, end of grammar, stop
  // token) and hands pages to the tree. sampled: Slice::num_samples() for each slice, in slice
  // order. Sets Slice::num_taken and Slice::num_forced.
  void commit(const Batch& batch, std::span<const SampledToken> sampled, TimePoint now);

  // Undoes all steps in flight, which failed with `why` and were not committed, and puts every
  // admitted request back to the queue, in the order of their admission. The requests keep their
  // tokens, and the tree gets the pages of all committed rows. A request that was undone kMaxUndone
  // times in a row without a new token ends with `why`. Returns how many were put back.
  int undo_steps(const Error& why, TimePoint now);
  static constexpr int kMaxUndone = 8;

  // Writes what cached sequences of the request's namespace have behind its tokens to `out`;
  // returns how many tokens that is (RadixCache::continuation). Allocates nothing.
  size_t continuation(const Request& request, std::span<TokenId> out) const;

  // cached_len() returns how many of the tokens need not be computed, in whole pages of the tree.
  // in_tree_len() also counts pages behind which the model cannot go on.
  int cached_len(const CacheNamespace& name_space, std::span<const TokenId> tokens) const;
  int in_tree_len(const CacheNamespace& name_space, std::span<const TokenId> tokens) const;
  // Returns how many pages are free, or would be after an eviction.
  int num_available_pages() const;
  // The tree's pages of `tokens`, and the state or the window behind all of them
  // (RadixCache::pages_in_tree, window_in_tree).
  std::vector<PageId> pages_in_tree(const CacheNamespace& name_space,
                                    std::span<const TokenId> tokens) const;
  int state_in_tree(const CacheNamespace& name_space, std::span<const TokenId> tokens) const;
  std::vector<PageId> window_in_tree(const CacheNamespace& name_space,
                                     std::span<const TokenId> tokens) const;
  // Give the tree what was computed before; no step may be in flight.
  // The last pages of `tokens`, a number of whole pages: at most `max_pages`, and as many as the
  // tree lacks behind those that it has. Takes pages for them, evicting others if need be, and
  // calls `fill` with their ids, which must write them all. Returns true if the tree has all pages
  // afterwards; false if it lacks more, or there is no room.
  bool restore(const CacheNamespace& name_space, std::span<const TokenId> tokens, int max_pages,
               const std::function<void(std::span<const PageId>)>& fill);
  // The state behind `tokens`, whose pages the tree has: takes a slot for it, evicting another
  // state if need be, and calls `fill`. Returns false, and changes nothing, if a page is missing or
  // there is no room; always for models without states.
  bool restore_state(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                     const std::function<void(int slot)>& fill);
  // The window behind `tokens`, whose pages the tree has: takes a page of window layers for each
  // one that was dropped, evicting others if need be, and calls `fill` with it and its index in the
  // window. Returns false, and changes nothing, if a page is missing or there is no room; always
  // for models without windows.
  bool restore_window(const CacheNamespace& name_space, std::span<const TokenId> tokens,
                      const std::function<void(int index, PageId page)>& fill);

  // Sessions (sessions.h). session_tokens() returns null if the session is not known, and is valid
  // until the next call; protect_session() takes whole pages of the tree.
  const SessionTokens* session_tokens(SessionKey key) const;
  void protect_session(SessionKey key, const CacheNamespace& name_space,
                       std::span<const TokenId> tokens, TimePoint now);
  bool end_session(SessionKey key);

  // Returns requests that ended since the last call, oldest first; they own no pages any more.
  std::vector<std::unique_ptr<Request>> take_finished();
  // Returns true if take_finished() would return any. Allocates nothing.
  bool has_finished() const;

  // Allocates nothing.
  NextStepForecast forecast_next_step() const;
  bool idle() const;
  SchedulerStats stats() const;
  // Writes running requests, then those in chunks, waiting and held ones, until `out` is full;
  // returns how many were written. Allocates nothing.
  size_t snapshot(std::span<RequestSnapshot> out) const;
  // Frees all cached pages. Returns false and frees nothing while a request runs, waits or is held.
  bool flush_cache();
  // Stops the process if an invariant is broken. Call when idle.
  void check_integrity() const;

 private:
  friend class PrefillPass;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
