// Asks the drafters for guesses of the next tokens of a rank's answers (policy/speculation) before
// each step with answers, and lets the gate choose among them, and learn from the step's results
// and its time. Gives each request a seat, the number by which gate and drafters know it.
//
//   offer() .. commit -> note()      forget() when a request has ended
//
// Where steps overlap, a step with drafts is made behind the commit of the one under way. The time
// that overlap would have saved is a part of the cost of drafts
// (policy/speculation/draft_overlap.h).
//
// Owner: the rank. Thread: engine, except state(). Allocates where a request gets a free seat only:
// in steps with prompts, or behind them if seats were short.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "engine/grammar/rank_grammars.h"
#include "policy/scheduler/scheduler_counters.h"
#include "policy/scheduler/scheduler_hooks.h"
#include "policy/speculation/draft_overlap.h"
#include "policy/speculation/drafter.h"
#include "policy/speculation/speculation_gate.h"

namespace hocket {

// Makes the drafter of a rank.
using DrafterMaker = std::function<std::unique_ptr<Drafter>(int rank, int num_seats)>;

// Says how many drafts steps have, and why. Without drafts `ranks` is empty.
struct SpeculationView {
  std::string algorithm = "none";
  int max_drafts = 0;  // most drafts of one answer in one step
  struct RankEntry {
    int rank = 0;
    GateState gate;
    SchedulerCounters counts;
  };
  std::vector<RankEntry> ranks;  // those of this process
};

class Speculation {
 public:
  struct Options {
    int num_seats = 0;         // requests that may run
    int max_drafts = 0;        // most drafts of one answer in one step
    std::optional<int> fixed;  // drafts of every answer that has room; null: they are chosen
    std::unique_ptr<Drafter> drafter, free;  // as SpeculationGate::Options
    RankGrammars* grammars = nullptr;        // outlives it; null: no answer has a grammar
  };
  explicit Speculation(Options options);

  // As DraftOverlap.
  bool waits_for_commit() { return overlap_.waits_for_commit(); }
  bool plays_drafts() const { return overlap_.plays_drafts(); }
  // Answers SchedulerHooks::offer_drafts().
  void offer(std::span<AnswerDrafts> answers, const DraftedStep& drafted);
  // Notes before offer() which rows the drafter has computed since the step before.
  void note_followed(FollowedRows rows) { followed_ = rows; }
  // The facts of a step that its batch does not have: what the drafter did before it, and the other
  // ranks in it.
  struct StepContext {
    FollowedRows rows = FollowedRows::none;  // rows that the drafter computed since the step before
    bool others_have_prompts = false;        // another rank computed rows of prompts in the step
    int num_other_answers = 0;               // those of other ranks in the step
    Duration making{};                       // time that it took to make drafts and these rows
    std::optional<double> overlapped_share = 1;  // as DraftOverlap::factor_of()
  };
  // Learns from a step that was committed at `now`; its requests are still there.
  void note(const Batch& batch, TimePoint now, const StepContext& context);
  // Says what a drafter that drafts_ahead() makes for the step after the one that was offered last.
  SpeculationGate::DraftsAhead ahead() const;
  // Gives a request that has none a seat before its rows are committed, if one is free or that of a
  // request which was sent back to the queue.
  void take_seat(const Request& request);
  // Notes that there is nothing to run, so the next step will not begin where the last one ended.
  void note_idle() { last_end_.reset(); }
  void forget(RequestId id);
  // Returns the seat of a request that has rows; -1: it has none.
  int seat_of(RequestId id) const;
  // Returns the request of a seat, for the drafter while it is asked.
  const Request& at(int seat) const { return *seated_[static_cast<size_t>(seat)]; }
  // Returns what the gate knows. Thread: any.
  GateState state() const;

 private:
  void seat(const Request& request) HOCKET_REQUIRES(mutex_);
  void free_a_waiting_seat() HOCKET_REQUIRES(mutex_);

  RankGrammars* const grammars_;
  const bool drafts_ahead_;  // the drafter makes drafts before it is asked
  mutable Mutex mutex_;
  SpeculationGate gate_ HOCKET_GUARDED_BY(mutex_);
  std::unordered_map<RequestId, int> seats_;
  std::vector<int> free_seats_;
  // The answers of the step that is made, and the requests by seat.
  std::vector<GateAnswer> gate_answers_;
  std::vector<const Request*> seated_;
  std::optional<TimePoint> last_end_;
  bool is_last_noted_ = false;  // the gate has learnt from the last step
  FollowedRows followed_ = FollowedRows::none;
  DraftOverlap overlap_;
};

}  // namespace hocket
