// The inside of a Scheduler: what it keeps from step to step, and the order in which the parts of a
// step act on it. scheduler.cc has the functions that only ask. Thread: engine.
#pragma once

#include <memory>
#include <span>

#include "policy/scheduler/admission_pause.h"
#include "policy/scheduler/batch_pair.h"
#include "policy/scheduler/decode_rows.h"
#include "policy/scheduler/kv_memory.h"
#include "policy/scheduler/new_token_ratio.h"
#include "policy/scheduler/prefill_pace.h"
#include "policy/scheduler/request_lists.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

struct Scheduler::State {
  explicit State(SchedulerOptions given);

  Result<void> add(RequestInput input);
  bool abort(RequestId id, FinishReason reason, Error error);
  void schedule();
  void commit(std::span<const SampledToken> sampled);
  int undo_steps(const Error& why);
  NextStepForecast forecast_next_step() const;

  // Parts of schedule(), in this order.
  void choose();
  void check_held_requests();
  int prepare_decode();
  void prefill();
  void launch();
  // Part of undo_steps().
  bool put_back(std::unique_ptr<Request> request, const Error& why);

  SchedulerOptions options;
  KvMemory memory;
  RequestLists lists;
  BatchPair batches;
  DecodeRows decode;
  LatencyPacing pacing;
  NewTokenRatio ratio;
  AdmissionPause pause;
  // True: nothing is scheduled until the steps in flight are committed, because a request must lose
  // its pages, or a prompt needs a slot for its state.
  bool must_commit_first = false;
  // True: the last pass of prompts was short because window pages are, so answers have the next.
  bool short_of_windows = false;
  TimePoint now{};          // time of the last schedule() or commit()
  uint64_t rows_total = 0;  // rows computed so far
  SchedulerCounters counters;
};

}  // namespace hocket
