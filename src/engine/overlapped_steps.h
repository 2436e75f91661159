// Overlaps the steps of a rank (--overlap-schedule on, or auto while it pays): keeps the thread
// that computes them, and whether steps overlap at all. The actions run one step apart, on two
// threads:
//
//   engine thread    agree(n + 1) prepare launch | wait(n) commit(n) reply(n) vote(n + 2) | ..
//   forward thread   .... forward, sample(n) ....| .... forward, sample(n + 1) ....
//
// The vote for step n + 2 is made when step n is committed, as without overlap: one step is under
// way then. It travels beside the forward pass of step n + 1 (vote_carrier.h), so that the engine's
// thread can agree, schedule and prepare before that pass is over. While a step is under way, so is
// an agreement.
// Owner: RankStep. Thread: engine.
#pragma once

#include <sched.h>

#include <functional>
#include <optional>
#include <span>

#include "engine/flight.h"
#include "engine/forward_thread.h"
#include "engine/lockstep/rank_overlap.h"
#include "engine/overlap_timing.h"
#include "engine/rank_epochs.h"
#include "engine/rank_report.h"

namespace hocket {

class OverlappedSteps {
 public:
  // The objects around the steps; all outlive it.
  struct Context {
    const StepTools& tools;
    RankOverlap& overlap;
    RankEpochs& epochs;
    RankReport& report;
  };
  explicit OverlappedSteps(const Context& around);

  // True if steps overlap now: the forward thread computes.
  bool active() const { return active_; }
  // Returns the ledger of the open step; null if the forward thread computes, which has it then.
  Ledger* ledger() { return active_ ? nullptr : &overlap_.ledger(); }
  // Returns the times of steps, which say whether they shall overlap.
  OverlapTiming& timing() { return timing_; }
  const OverlapTiming& timing() const { return timing_; }
  // Returns OverlapTiming::overlapped_share() as the ranks knew it in a step; null if a flag says
  // that steps overlap, because then nothing measures it here.
  std::optional<double> share_at(const Flight& flight) const;

  // Called by the thread that will run the steps, before the first of them.
  void adopt_thread();
  // Starts a new epoch: drops the step that the ledger had open, and decides anew whether to
  // measure overlap.
  void rebind();
  // Changes which thread computes. Precondition: no step is under way.
  void set_active(bool active);

  // Runs a job between two steps, on the thread that computes. Precondition: no step is under way.
  template <class Job>
  void run_between(const Job& job) {
    if (!active_) return job();
    run_on_forward_thread(std::cref(job));
  }
  // Starts to compute a prepared step. At most ForwardThread::kMaxSteps may be under way.
  void launch(Flight& flight);
  // Waits for the oldest step under way. Precondition: there is one.
  Flight& wait() { return thread_->wait(); }
  int num_under_way() const { return thread_ ? thread_->num_under_way() : 0; }
  // Sleeps until the step under way is about to end, so that requests that arrive meanwhile count
  // in the next step, as they do without overlap. `finished` is the step before it.
  void await_more_requests(const Flight& finished, const Flight& under_way);

  // Notes a step that was committed at `now`, overlapped or not.
  void note_commit(const Flight& flight, TimePoint now);
  // Notes that nothing is left to run.
  void note_idle();

 private:
  void run_on_forward_thread(const std::function<void()>& job);
  void compute(Flight& flight, std::span<const SampledToken> before);
  bool is_of_answers(const Flight& flight) const;

  const StepTools& tools_;
  RankOverlap& overlap_;
  RankEpochs& epochs_;
  RankReport& report_;
  bool active_ = false;
  bool after_idle_ = true;  // nothing has run since this rank was idle
  OverlapTiming timing_;
  std::optional<cpu_set_t> own_cpus_;  // those of the engine's thread before it computed
  // The forward thread waits for its next step. Thread: forward, while it computes.
  std::optional<Ledger::OtherWork> between_;
  // Set with overlapped scheduling only. It is last because it uses all others.
  std::optional<ForwardThread> thread_;
};

}  // namespace hocket
