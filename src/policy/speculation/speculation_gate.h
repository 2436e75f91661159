// Chooses how many drafts of each request a step verifies, from measured times and from how often
// drafts held, and says why. None is a choice like others, and the first one.
//
//   offer(answers of the next step) -> drafts -> which number of rows is worth its time? -> drafts
//   note_answer(), note_step()      -> what held, and how long it took
//
// A drafter that makes drafts ahead needs to know earlier: then offer() chooses for the step after
// the one that is offered, and ahead() says what to make for it:
//
//   offer(n): hands out what was made for n, chooses for n + 1 -> ahead() -> drafts are made
//
// Such a drafter follows requests at a cost. If steps have no drafts, it goes on only as long as
// that may be worth it: the cost comes out of the credit of trials. When that is used up the
// drafter rests, and begins again with new requests when the credit has grown. Prompts are
// followed, too: each step with drafts made ahead has to gain its part of that.
//
// Beside a drafter that makes drafts ahead there may be one whose drafts are free. Each answer gets
// the drafts of which more are expected to hold. A step has drafts of both, or of the free one
// only, for which none are made ahead; the gate knows what steps of either way cost.
//
// It sees all answers of a step at once: a step of r times the rows takes less than r times as
// long, so a few drafts may not pay where many do. Numbers that could be better than the usual one
// are tried (base/trial_pace.h) as long as trials have lost less time than their credit. All
// constants are in gate_tuning.h. Owner: a rank; ranks choose for themselves. Thread: engine. After
// construction only begin() allocates.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/running_median.h"
#include "base/trial_pace.h"
#include "policy/scheduler/step_times.h"
#include "policy/speculation/acceptance.h"
#include "policy/speculation/draft_costs.h"
#include "policy/speculation/drafter.h"
#include "policy/speculation/gate_state.h"

namespace hocket {

// An answer of the next step. The caller sets all but `drafts`.
struct GateAnswer {
  int seat = -1;                    // -1: without a seat it gets no drafts
  std::span<const TokenId> tokens;  // the prompt and all generated tokens
  int most = 0;                     // most drafts that have room
  std::span<const TokenId> drafts;  // valid until the next offer() or the end of the seat
  int kind = 0;                     // that of the drafts
};

class SpeculationGate {
 public:
  struct Options {
    std::unique_ptr<Drafter> drafter;  // not null
    std::unique_ptr<Drafter> free;     // is_free(), beside one that is_ahead(); null: none
    int num_seats = 1;
    int max_drafts = kMaxDrafts;  // drafts of one answer; 1..kMaxDrafts
    std::optional<int> fixed;     // so many drafts, if there are as many; null: the gate chooses
  };
  explicit SpeculationGate(Options options);

  // A request of at most `max_len` tokens takes the seat.
  void begin(int seat, int max_len);
  void end(int seat);

  // Sets the drafts of the next step, at most `max_rows` together. total_keys: the lengths of all
  // answers together. `answers` has at most num_seats elements.
  void offer(int64_t total_keys, std::span<GateAnswer> answers, int max_rows);
  // Says what a drafter that is_ahead() makes for the step after the one that was offered last.
  struct Ahead {
    bool follows = true;  // it computes the rows of the tokens that the step settles
    int depth = 0;        // and so many drafts of each answer from them
  };
  Ahead ahead() const;

  // The first `num_held` of this seat's drafts held in the last step; it goes on.
  void note_answer(int seat, int num_drafts, int num_held);
  struct Step {
    int num_answers = 0, num_drafts = 0, num_tokens = 0;
    int64_t total_keys = 0;  // as in offer()
    double us = 0;           // from the end of the step before to its end
    // True if it had rows of answers and their drafts only, and began right after the step before.
    bool is_pure = false;
    // True if rows of a drafter that is_ahead() were computed in this time, which took making_us.
    bool follows = false;
    double making_us = 0;
  };
  void note_step(const Step& step);

  GateState state() const;

 private:
  // When drafts of a step are made: at once, or, by a drafter that is_ahead(), before it.
  enum class DraftTiming : uint8_t { now, ahead };
  // A number of drafts of all answers together, and the expectation of it.
  struct Candidate {
    int num_drafts = 0;
    double held = 0, best_case = 0;  // drafts that will hold; that may hold at best
  };
  // Gains are in steps without drafts.
  struct Estimate {
    int num_drafts = 0;
    double gain = 0, best_case = 0;  // expected, and at best
    double worst_case = 0;           // expected, less the error of what a change would bring
    double tokens = 1;               // tokens of an answer
    DraftCosts::Cost cost;
  };
  // Costs and choices of a bucket's steps with drafts that were made now, or ahead.
  struct TimingState {
    DraftCosts costs;
    GateChoice usual, best;                         // as in GateState
    int num_remaining_trials = kGate.first_trials;  // steps of trials that need not be rare
  };
  // One size of steps.
  struct Bucket {
    int num_answers = 0;              // the border; 0: the bucket is free
    int64_t answer_keys = 0;          // the border of keys of one answer
    std::array<TimingState, 2> ways;  // by DraftTiming; both have the time without drafts
    TimingState& way(DraftTiming timing) { return ways[static_cast<size_t>(timing)]; }
    const TimingState& way(DraftTiming timing) const { return ways[static_cast<size_t>(timing)]; }
    int num_plain() const { return ways[0].costs.num_plain(); }
    RunningMedian<kGate.remembered> plain_steps;  // times of steps without drafts
    double tokens_mean = 1, time_ratio_mean = 1;  // means of its last choices, as in GateChoice
    double plain_us = 0;                          // time that its last step takes without drafts
    uint64_t num_steps = 0, num_draft_steps = 0, num_trial_steps = 0, last_used = 0;
    uint64_t last_plain = 0;  // num_steps at its last step without drafts
  };
  // Drafts that were made anyway: whether they hold is seen in the tokens that follow.
  struct WatchedDrafts {
    std::array<TokenId, kMaxDrafts> tokens{};
    int num = 0, kind = 0;
    size_t at = 0;  // length of the request when they were made
  };
  // Drafts that an answer could have in the step that is being chosen.
  struct PossibleDrafts {
    size_t answer = 0;                // index among the caller's
    const DraftTask* task = nullptr;  // the drafter's whose drafts they are
    bool is_ahead = false;            // it makes them ahead
    int num = 0;
    std::array<uint8_t, kMaxDrafts> levels{};  // chances that each holds
  };
  static constexpr int kLevels = 128;
  // The choice for the next step of a drafter that is_ahead().
  struct Next {
    int num_drafts = 0;
    bool is_trial = false;
    Ahead ahead;
  };

  // The drafts that a choice is made from: all that were made; only those of the free drafter,
  // where the other one is_ahead(); or those that can be made for the next step.
  enum class DraftSet : uint8_t { made, free, next_step };

  // True if drafts are there before any is chosen, so that those left out are seen to hold, too.
  bool are_at_hand() const { return options_.drafter->is_free() || is_ahead(); }
  bool is_ahead() const { return options_.drafter->is_ahead(); }
  void make_drafts(std::span<GateAnswer> answers);
  void compare(WatchedDrafts& watched, const DraftTask& task);
  // gate_choice.cc: lists what there is, judges it, and gives the answers what was chosen.
  void list(DraftSet set, std::span<const GateAnswer> answers, int max_rows);
  void list_candidates(int max_rows);
  double expected_of(const DraftTask& task, int num) const;
  Estimate judge(const Bucket& bucket, DraftTiming timing, int num_answers,
                 const Candidate& candidate) const;
  std::pair<Estimate, Estimate> judge_all(const Bucket& bucket, DraftTiming timing, int num_answers,
                                          double other_gain) const;
  Estimate choose(Bucket& bucket, DraftTiming timing, int num_answers, double other_gain);
  // A number of drafts to try, and what it may gain beyond the usual one.
  struct TrialCandidate {
    int num_drafts = -1;
    double gain = 0;
    bool is_new = false;  // its cost was hardly measured
  };
  static double worth_of(const Bucket& bucket);
  bool is_plain_old(const Bucket& bucket, DraftTiming timing, const Estimate& usual) const;
  TrialCandidate most_promising(const Bucket& bucket, DraftTiming timing, const Estimate& usual,
                                int num_answers) const;
  bool may_gain(const Bucket& bucket, DraftTiming timing, const Estimate& usual, int num_answers,
                int num_drafts) const;
  int try_one(Bucket& bucket, DraftTiming timing, const Estimate& usual, int num_answers);
  void assign_drafts(int num_drafts);

  void offer_beside_ahead(Bucket& bucket, std::span<GateAnswer> answers, int max_rows);
  void choose_ahead(Bucket& bucket, std::span<const GateAnswer> answers, int max_rows,
                    double free_gain);
  void share_out(int num_drafts, std::span<GateAnswer> answers);
  void note_prompts(const Step& step);
  void note_gain(const Bucket& bucket, const Step& step, bool is_trial);
  void note_plain(Bucket& bucket, const StepShape& shape, double us);
  Bucket& bucket_for(int num_answers, int64_t total_keys);

  const Options options_;
  Acceptance acceptance_;
  StepTimes plain_times_;  // times of steps without drafts; the reference of all costs
  std::vector<Bucket> buckets_;
  uint64_t clock_ = 0;
  double growth_ = kGate.growth;  // that of the size that was measured last
  GateTotals totals_;

  TrialPace pace_;
  const Bucket* trial_of_ = nullptr;  // the size of the trial under way
  DraftTiming trial_timing_ = DraftTiming::now;
  int trial_drafts_ = 0;    // its number of drafts
  bool is_trial_ = false;   // the step that was offered is one
  bool was_trial_ = false;  // the last step was one
  // How often a timing has left a trial to the other one since its own last trial.
  int num_yielded_ = 0;
  double credit_ = kGate.first_credit;
  double expected_ = 0;  // drafts of the step that was offered that are expected to hold
  Next next_;
  DraftTiming timing_ = DraftTiming::now;  // for the step that was offered
  bool rests_ = false;                     // the credit was used up, and has not grown enough since
  // The time of following prompts, in steps without drafts, and the steps of answers that it is
  // spread over; both forget.
  double prompts_cost_ = 0, prompts_steps_ = 0;
  double last_plain_us_ = 0;  // time of the last step, had it had no drafts; 0: unknown

  // For the step that is being chosen. tasks_[i] and free_tasks_[i] belong to possible_[i].
  std::vector<DraftTask> tasks_, free_tasks_;
  std::vector<PossibleDrafts> possible_;
  struct Level {
    int num = 0;
    double held = 0, best_case = 0;
  };
  std::array<Level, kLevels> levels_{};  // drafts by the chance that they hold
  std::vector<Candidate> candidates_;
  std::vector<WatchedDrafts> watched_, free_watched_;  // by seat
  std::vector<int> kinds_;                             // by seat, of its last drafts
};

}  // namespace hocket
