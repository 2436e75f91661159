// Callbacks that the scheduler makes during a step. Their order in schedule() is fixed:
//
//   timeouts -> ready (for each held request) -> may_begin -> waits_again (for each request that
//     would begin) -> prompts (needs_windows for each) -> offer_drafts -> decode rows
//     -> any_rank_computes
//     -> the batch is computed -> on_pages_cached (for each request whose pages the tree took)
//
// A function that is not overridden has no effect. One object answers for all parts. Owner: the
// maker of the scheduler; it outlives the scheduler.   Thread: engine; must not block.
#pragma once

#include <span>

#include "base/result.h"
#include "policy/scheduler/batch.h"
#include "policy/scheduler/request.h"

namespace hocket {

// An answer with rows in the step, and drafts for it.
struct AnswerDrafts {
  const Request* request = nullptr;
  int rows = 0;        // without drafts
  int max_drafts = 0;  // number for which there is room; 0 also while another step is in flight
  std::span<const TokenId> drafts = {};
  bool are_predicted = false;  // the drafts are of RequestInput::prediction
};

// The step that drafts are for.
struct DraftedStep {
  int max_rows = 0;          // rows of all drafts together
  bool has_prompts = false;  // this rank or another computes rows of prompts in the same step
  // Answers in the same step of the other ranks, and drafts that those ranks had in their last one.
  int num_other_answers = 0, num_other_drafts = 0;
  uint64_t number = 0;  // that of the step; all ranks that share it have the same
};

class SchedulerHooks {
 public:
  virtual ~SchedulerHooks() = default;

  // Returns true if the request may wait in line. Asked when it arrives and, while the answer is
  // no, in every schedule(); until then it is held. It is then queued behind the requests that
  // already wait, but its waiting time counts from its arrival. Errors: the request ends with the
  // error; if it has just arrived, it is refused.
  virtual Result<bool> ready(const Request& /*request*/) { return true; }

  // Returns true if a request that could begin now is to be held once more, because it has lost
  // what it had waited for, such as pages of its prompt that were evicted while it waited in line.
  // ready() is then asked as before, and lets it go back to its place in line.
  virtual bool waits_again(const Request& /*request*/) { return false; }

  // Returns true if prompts may begin in this pass. Asked before each try to begin or continue
  // prompts, perhaps twice in one schedule(). False: no head is tried, skipped or overtaken, and
  // prompts in chunks continue.
  virtual bool may_begin() { return true; }

  // Called when a request that a peer with larger pages awaits is about to begin behind a prefix
  // that the tree has up to token `border`, without some of the window pages that the peer needs to
  // continue there. True: these are computed again. False: the peer has no need of them here.
  virtual bool needs_windows(const Request& /*request*/, int /*border*/) { return false; }

  // Called once if answers have rows in the step, with all of them. Sets AnswerDrafts::drafts,
  // where it has guesses of the request's next tokens; they are copied after the call. At most
  // DraftedStep::max_rows of all drafts are used, the first ones. A step with drafts must be
  // committed before the next schedule().
  virtual void offer_drafts(std::span<AnswerDrafts> /*answers*/, const DraftedStep& /*step*/) {}

  // Called exactly once in every schedule(), even when this rank has nothing to run. `mine` has all
  // its rows; its mode is idle if there are none. Returns true if any rank computes, as the ranks
  // agreed before. True turns a batch without rows into an idle step, which is run and committed
  // like others (Batch::idle_step); a batch with rows is run in any case.
  virtual bool any_rank_computes(const Batch& /*mine*/) { return false; }

  // Called in commit() when the tree has taken the first Request::leased_pages pages of a request:
  // they are computed, and no row is written to them any more.
  virtual void on_pages_cached(const Request& /*request*/) {}
  // Called in commit(), behind on_pages_cached(), when the tree has taken the state of the
  // request's first `len` tokens, to which no row is written any more.
  virtual void on_state_cached(const Request& /*request*/, int /*len*/, int /*slot*/) {}

 protected:
  SchedulerHooks() = default;
  SchedulerHooks(const SchedulerHooks&) = default;
  SchedulerHooks& operator=(const SchedulerHooks&) = default;
};

}  // namespace hocket
