// The settings of a Scheduler, and what follows from them alone. Thread: any one.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"
#include "core/state_slot.h"
#include "core/visible_keys.h"
#include "policy/cache/eviction.h"
#include "policy/cache/kv_events.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/prefix_order.h"
#include "policy/scheduler/schedule_policy.h"

namespace hocket {

class SchedulerHooks;

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
  // model. A slot for the tokens behind the last state belongs to each running request.
  int num_states = 0;
  int state_tokens = kDeltaBlock;    // tokens between two states; others in tests only
  int cached_state_interval = 4096;  // tokens from one state of a long prompt to the next
  // Models with window layers: their pages, and what such a layer sees; without a bound: no such
  // model. At least enough for two requests, or num_pages if that is less.
  int num_window_pages = 0;
  VisibleKeys window;
  int max_forced = kMaxForcedTokens;  // tokens that a grammar forces at once
  int max_running_requests = 256;
  // Most rows of answers in a step, drafts and forced tokens included. A smaller number is raised
  // to max_running_requests.
  int max_decode_rows = 0;
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

// Returns the most rows that a request computes at a time while others wait.
int rows_at_a_time(const SchedulerOptions& options);
// Returns the most pages of window layers that a request holds while it decodes, or prefills by a
// page at a time.
int window_pages_of_request(const SchedulerOptions& options);

}  // namespace hocket
