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
#include "policy/scheduler/request.h"
#include "policy/scheduler/scheduler_counters.h"
#include "policy/scheduler/scheduler_hooks.h"
#include "policy/scheduler/scheduler_options.h"

namespace hocket {

// Numbers for logs, metrics and /get_load; they are current values, not averages.
struct SchedulerStats : SchedulerCounters {
  int num_running = 0, num_waiting = 0;
  int num_sessions = 0;
  int num_held = 0;  // not ready to wait in line (SchedulerHooks::ready); not in num_waiting
  int64_t num_waiting_tokens = 0;  // prompt tokens, held requests included
  int num_pages = 0, num_free_pages = 0, num_cached_pages = 0, num_private_pages = 0;
  // Slots of states: all, free ones, and those in the tree.
  int num_states = 0, num_free_states = 0, num_cached_states = 0;
  // Pages of window layers: all, free ones, and those in the tree.
  int num_window_pages = 0, num_free_window_pages = 0, num_cached_window_pages = 0;
  int64_t num_used_tokens = 0;  // tokens in pages that are neither free nor evictable
  double token_usage = 0;       // num_used_tokens as a share of the pool
  double new_token_ratio = 0;
  // PrefillPolicy::latency sets these: the prompt tokens allowed in the last pass beside running
  // requests (0: none yet), and the mean of |step time / its prediction - 1| over some sixty steps.
  int itl_chunk_tokens = 0;
  double step_time_error = 0;
};

// A forecast of the next schedule(). If asked while a step is under way, it looks past that step's
// commit, but foresees neither a request that a token ends there nor one that arrives.
struct NextStepForecast {
  int num_decoding = 0;    // running requests that decode on
  bool continues = false;  // a prompt in chunks continues
  bool begins = false;     // a prompt may begin, as far as is known
};

// The state of one request, for the server's page.
struct RequestSnapshot {
  // held: not ready to wait in line. prefilling: part of its prompt is computed or under way.
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
  // finished id. take_finished() returns the aborted request.
  bool abort(RequestId id, FinishReason reason, Error error);

  // Returns the next step's rows, with pages assigned; empty when there is nothing to do. Exactly
  // one commit() follows each non-empty batch, in the order of schedule(). The reference is valid
  // until the first schedule() after its commit.
  //
  //   overlapped:  schedule(A) schedule(B) commit(A) schedule(C) commit(B) ...
  //
  // One batch may be uncommitted. Then rows may stand for tokens that it has yet to sample
  // (Slice::pending_sample), and a request that turns out to have ended has a row too many, which
  // commit() drops. A request can lose its pages (retraction, preemption) only when all its tokens
  // are known: the batch is then empty, and the one in flight must be committed before schedule()
  // is called again; so it is if a prompt lacks a slot for its state. Steps must be computed in
  // this order, one after the other: pages are given away while a step that reads them is under
  // way, and only later steps write them.
  const Batch& schedule(TimePoint now);
  // Says how long the step took; call before its commit(). PrefillPolicy::latency learns from it.
  void note_duration(const Batch& batch, Duration took);
  // Appends sampled tokens, ends requests (abort, no usable token, length, end of grammar, stop
  // token) and hands pages to the tree. sampled: Slice::num_samples() for each slice, in slice
  // order. Sets Slice::num_appended and Slice::num_forced.
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
  // in_tree_len() also counts pages behind which the model cannot continue.
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
  // Returns how many rows of prompts may be computed next, at most `most`: those that prompts in
  // chunks have left, and those of waiting prompts that the cache lacks. Held requests do not
  // count. Allocates nothing.
  int64_t num_prompt_rows(int64_t most) const;
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
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
