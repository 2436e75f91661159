// One try to put prompts into a step: prompts in chunks, then waiting ones, then longer chunks. Its
// members live no longer than the try, so no call order is hidden in the scheduler's state; run()
// returns what the scheduler has to remember. Thread: engine.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/kv_memory.h"
#include "policy/scheduler/prefill_adder.h"
#include "policy/scheduler/prefill_pace.h"
#include "policy/scheduler/request_lists.h"
#include "policy/scheduler/scheduler_counters.h"
#include "policy/scheduler/scheduler_options.h"

namespace hocket {

// The step that gets the rows. The objects outlive the pass.
struct PrefillStep {
  Batch& batch;
  LatencyPacing& pacing;
  SchedulerCounters& counters;
  int num_decode_rows = 0;      // rows of running.ready() in the step, which have their pages
  double ratio = 0;             // NewTokenRatio::now()
  bool may_begin = false;       // false: only prompts in chunks may continue
  bool rows_in_flight = false;  // another step computes rows
  uint64_t rows_total = 0;      // WaitingQueue::Progress
  TimePoint now{};
};

struct PrefillOutcome {
  bool no_room = false;  // a waiting request did not fit
  // The steps in flight must be committed before a further try, since a prompt needs a slot for its
  // state, or a running request must lose its pages to it.
  bool must_commit_first = false;
  bool short_of_windows = false;  // the pass is short because window pages are
};

class PrefillPass {
 public:
  PrefillPass(const SchedulerOptions& options, RequestLists& lists, KvMemory& memory,
              const PrefillStep& step);
  PrefillOutcome run();

 private:
  bool continue_chunked();
  bool continue_chunk(Request& request, int parts);
  void lengthen_chunks();
  PrefillCandidate chunk_behind(const Request& request, int computed_len) const;
  void admit_waiting();
  AddResult verdict();
  bool prefix_is_under_way(const Request& request) const;
  bool has_state_room();
  bool holds_again(const Request& request, const PrefillCandidate& wanted) const;
  AddResult admit();
  PrefillCandidate candidate(const Request& request, const PrefixMatch& match, int spare) const;
  void start(PrefixMatch match, int len);
  void note_first_start(Request& request, int longest_match);
  bool may_preempt() const;
  bool preempt_for_head();
  PrefixMatch find_prefix(const Request& request);
  // Limits the rows of a prompt whose next row is at `begin`.
  void pace(int begin);
  int num_parts(int num_here) const;
  int rows_of_others(int parts) const;
  // Returns the window pages for `request`; null: for a request that would begin.
  int window_room(const Request* request) const;

  const SchedulerOptions& options_;
  RequestLists& lists_;
  KvMemory& memory_;
  const PrefillStep step_;
  PrefillOutcome outcome_;
  int num_decodable_;  // running requests that are not in this pass's prefill
  PrefillAdder adder_;
  PrefillPace pace_;
  std::vector<const Request*> preempted_;
};

}  // namespace hocket
