// One try to put prompts into a step: prompts in chunks, then waiting ones, then longer chunks. Its
// members live no longer than the try, so no call order is hidden in the scheduler's state. It
// fills the scheduler's current batch. Bodies: prefill.cc, preempt.cc. Thread: engine.
#pragma once

#include <vector>

#include "policy/scheduler/prefill_adder.h"
#include "policy/scheduler/scheduler_state.h"

namespace hocket {

class PrefillPass {
 public:
  // begins_allowed: false if only prompts in chunks may go on (SchedulerHooks::may_begin).
  PrefillPass(Scheduler::State& state, bool begins_allowed);
  void run();

 private:
  // prefill.cc
  bool continue_chunked();
  bool continue_chunk(Request& request, int parts);
  void admit_waiting();
  bool may_preempt() const;
  AddResult verdict() const;
  bool prefix_is_under_way(const Request& request) const;
  AddResult admit();
  PrefillCandidate candidate(const Request& request, const PrefixMatch& match, int spare) const;
  void start(PrefixMatch match, int len);
  void lengthen_chunks();
  void pace(int begin);
  bool may_begin() const;
  int num_parts(int num_here) const;
  int rows_of_others(int parts) const;
  // preempt.cc
  bool preempt_for_head();

  Scheduler::State& s_;
  const bool begins_allowed_;
  int num_decodable_;  // running requests that are not in this pass's prefill
  PrefillAdder adder_;
  std::vector<const Request*> preempted_;
  // PrefillPolicy::latency uses these: rows of running requests, and the longest step time.
  StepShape decoding_;
  Duration goal_{};
};

}  // namespace hocket
