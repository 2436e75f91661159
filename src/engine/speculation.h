// Guesses the next tokens of a rank's answers (policy/speculation): gives each request a seat at
// drafter and gate, asks them before each step with answers, and lets them learn from its
// results and its time.
//
//   offer() .. commit -> note()      forget() when a request has ended
//
// Where steps overlap, drafts need the tokens of the step under way, so a step with drafts is made
// behind the commit of that one. It takes longer by the time that overlap would have saved; the
// gate counts this as a part of the cost of drafts.
//
// Owner: the rank. Thread: engine, except state(). Allocates in steps with prompts only.
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
#include "policy/speculation/drafter.h"
#include "policy/speculation/speculation_gate.h"

namespace hocket {

// Makes the drafter of a rank.
using DrafterMaker = std::function<std::unique_ptr<Drafter>(int rank, int num_seats)>;

// Says how many drafts steps have, and why. Without drafts `ranks` is empty.
struct SpeculationView {
  std::string algorithm = "none";
  int max_drafts = 0;  // an answer in a step
  struct OfRank {
    int rank = 0;
    GateState gate;
    SchedulerCounters counts;
  };
  std::vector<OfRank> ranks;  // those of this process
};

// The rows that a drafter computed to follow requests, before a step.
enum class FollowedRows : uint8_t { none, answers, prompts };

class Speculation {
 public:
  struct Options {
    int num_seats = 0;         // requests that may run
    int max_drafts = 0;        // an answer in a step
    std::optional<int> fixed;  // every answer gets so many if it has room; else they are chosen
    std::unique_ptr<Drafter> drafter, free;  // as SpeculationGate::Options
    RankGrammars* grammars = nullptr;        // outlives it; null: no answer has a grammar
  };
  explicit Speculation(Options options);

  // Returns true if, where steps overlap, the step under way should be committed before the next
  // one is made, because that one may have drafts. It is true while steps have drafts, and now and
  // then to see if they would. Call once for each step with answers.
  bool wants_tokens();
  // Returns true if the latest steps had drafts, which lets no step overlap another.
  bool plays_drafts() const { return is_fixed_ || num_dry_ < kDryOffers; }
  // Answers SchedulerHooks::offer_drafts().
  void offer(std::span<AnswerDrafts> answers, int max_rows);
  // The costs of a step beside its rows.
  struct StepCosts {
    FollowedRows rows = FollowedRows::none;  // rows that the drafter computed since the step before
    Duration making{};                       // time that it took to make drafts and these rows
    // Time of a step that overlaps, as a share of one that does not. Steps that could have
    // overlapped are counted with it, because drafts prevented that.
    double overlapped_share = 1;
  };
  // Learns from a step that was committed at `now`; its requests are still there.
  void note(const Batch& batch, TimePoint now, const StepCosts& costs);
  // Says what a drafter that is_ahead() makes for the step after the one that was offered last.
  SpeculationGate::Ahead ahead() const;
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
  static constexpr int kDryOffers = 4;  // in a row, until steps overlap again
  static constexpr int kLookEvery = 8;  // overlapping steps until drafts are asked for again
  void seat(const Request& request) HOCKET_REQUIRES(mutex_);

  RankGrammars* const grammars_;
  mutable Mutex mutex_;
  SpeculationGate gate_ HOCKET_GUARDED_BY(mutex_);
  std::unordered_map<RequestId, int> seats_;
  std::vector<int> free_seats_;
  // The answers of the step that is made, and their requests by seat.
  std::vector<GateAnswer> gate_answers_;
  std::vector<const Request*> seated_;
  std::optional<TimePoint> last_end_;
  const bool is_fixed_;
  // Counts for wants_tokens(): offers without drafts since the last one with some, up to
  // kDryOffers; and how often it has returned false since it last returned true.
  int num_dry_ = kDryOffers, num_refused_ = 0;
};

}  // namespace hocket
