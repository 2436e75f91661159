// Guesses the next tokens of a rank's answers (policy/speculation): gives each request a seat at
// drafter and gate, asks them before each step with answers, and tells them what the step brought
// and how long it took.
//
//   offer() .. commit -> note()      forget() when a request has ended
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
#include "policy/scheduler/scheduler_counters.h"
#include "policy/scheduler/scheduler_hooks.h"
#include "policy/speculation/drafter.h"
#include "policy/speculation/speculation_gate.h"

namespace hocket {

// Makes the drafter of a rank.
using DrafterMaker = std::function<std::unique_ptr<Drafter>(int rank, int num_seats)>;

// How many drafts steps have, and why. Without drafts there are no ranks.
struct SpeculationView {
  std::string algorithm = "none";
  int most_drafts = 0;  // an answer in a step
  struct OfRank {
    int rank = 0;
    GateState gate;
    SchedulerCounters counts;
  };
  std::vector<OfRank> ranks;  // those of this process
};

class Speculation {
 public:
  struct Options {
    int num_seats = 0;         // requests that may run
    int most_drafts = 0;       // an answer in a step
    std::optional<int> fixed;  // every answer gets so many if it has room; else they are chosen
    std::unique_ptr<Drafter> drafter;
  };
  explicit Speculation(Options options);

  // Answers SchedulerHooks::offer_drafts().
  void offer(std::span<DraftOffer> answers, int most_rows);
  // Learns from a step that was committed at `now`; its requests are still there.
  void note(const Batch& batch, TimePoint now);
  // There is nothing to run: the next step does not begin where the last one ended.
  void rest() { last_end_.reset(); }
  void forget(RequestId id);
  // Returns the seat of a request that has rows; -1: it has none.
  int seat_of(RequestId id) const;
  // Returns what the gate knows. Thread: any.
  GateState state() const;

 private:
  void seat(const Request& request) HOCKET_REQUIRES(mutex_);

  mutable Mutex mutex_;
  SpeculationGate gate_ HOCKET_GUARDED_BY(mutex_);
  std::unordered_map<RequestId, int> seats_;
  std::vector<int> free_seats_;
  std::vector<GateAsk> asks_;  // those in the step that is made
  std::optional<TimePoint> last_end_;
};

}  // namespace hocket
