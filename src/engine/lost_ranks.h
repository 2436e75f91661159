// Keeps a rank's requests when other ranks are lost, or ends them: they wait for a limited time
// until the ranks are back, or end with an error. Requests that a lost rank computed for another
// process go back to that one (server/ranks/forwarded_requests.h).
//
//   handle()   end_if_over() ..   end_idle() when the ranks have joined   end() with the next step
//
// Owner: RankRequests, whose scheduler and answers it borrows. Thread: engine.
#pragma once

#include <span>

#include "base/clock.h"
#include "engine/lost_rank_timeout.h"
#include "engine/rank_answers.h"
#include "engine/rank_epochs.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

class LostRanks {
 public:
  // These outlive it.
  struct Context {
    const Clock& clock;
    RankEpochs& epochs;
    Scheduler& scheduler;
    const RankAnswers& answers;
  };
  // limit: how long requests wait; 0: they end at once.
  LostRanks(Duration limit, const Context& context) : context_(context), timeout_(limit) {}

  // Call it when ranks were lost in the steps under way. Requests wait for the ranks or end;
  // `uncommitted` are the steps that were scheduled and not committed.
  void handle(std::span<const Batch* const> uncommitted);
  // Returns whether a new request may wait until this rank has joined the others.
  bool may_wait();
  // Call it when experts are loaded for an epoch, which takes `loading`: requests that wait for
  // lost ranks wait longer by that time.
  void prolong(Duration loading);
  // Ends the requests that have waited too long.
  void end_if_over();
  // Ends the wait if no request is there.
  void end_idle();
  // Ends the wait, because a step was committed or the ranks are connected.
  void end() { timeout_.end(); }
  // Aborts all requests with `why`; those that wait for lost ranks fail with the error of these.
  void abort_all(const Error& why);

 private:
  void abort_live(FinishReason reason, const Error& why);

  const Context context_;
  LostRankTimeout timeout_;
};

}  // namespace hocket
