// What a step asks those outside of the scheduler, each question at its fixed place in schedule():
//
//   timeouts -> ready: of each held request -> those in chunks -> may_begin -> may_join: of each
//     head -> decode rows -> agree -> the batch counts as computed
//
// The parts to come, and where they belong:
//
//   grammars          ready: while they compile; an error if that fails
//   disaggregation    decode side: ready, while keys and values arrive. Prefill side: ready, until
//                     the receiver has named its pages; commit() tells of each chunk to be sent
//   adapters (LoRA)   may_join: while all places for adapters are taken by those who run
//   host cache        may_join: while a prefix is fetched from storage. What host memory holds is
//                     loaded in start(), and counts as prefix in PrefillCandidate
//   data-parallel     before the step, from Scheduler::prospect(): what all ranks run, and whether
//                     prompts are among it. may_begin and agree tell what came of it
//   speculation       nothing here: a decode row becomes several, prepare_decode() takes their
//                     pages. Where ranks must not mix modes then, agree comes once the prefill is
//                     known, before the decode rows
//   window and state pools   nothing here: a budget each beside the pages in prefill_adder.h; the
//                     order of a step stays the same
//
// What it does not override changes nothing. One object answers for all parts.
// Owner: who makes the scheduler; outlives it.   Thread: engine; no answer may block.
#pragma once

#include "base/result.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/request.h"

namespace hocket {

class Outside {
 public:
  virtual ~Outside() = default;

  // Whether it may stand in line. Asked when it arrives and, while the answer is no, once in every
  // schedule(): until then it is held. It then stands behind those who are there; its time to wait
  // began when it arrived.
  // Errors: the request ends with it; at its arrival it is refused.
  virtual Result<bool> ready(const Request& /*request*/) { return true; }

  // Whether prompts may begin in this pass at all; asked where one could, perhaps twice. No: nobody
  // is asked, skipped or overtaken, and those in chunks go on.
  virtual bool may_begin() { return true; }

  // Whether the head may be admitted in this pass, which only memory and places can still refuse.
  // No: it is skipped (waiting_queue.h), the next one is asked, and it again in the next pass.
  virtual bool may_join(const Request& /*head*/) { return true; }

  // Exactly once in every schedule(), also when this rank has nothing to run: the batch with all
  // its rows, mode idle if there are none. Whether any rank computes, by what was agreed before.
  // True for a batch without rows makes it an idle step, which is run and committed with the
  // others' (Batch::idle_step); a batch with rows is run whatever the answer is.
  virtual bool agree(const Batch& /*mine*/) { return false; }

 protected:
  Outside() = default;
  Outside(const Outside&) = default;
  Outside& operator=(const Outside&) = default;
};

}  // namespace hocket
