// Chooses how many drafts of each request a step verifies, from measured times and from how often
// drafts were accepted, and says why. No drafts is one of the choices, and the first one.
//
//   offer(answers of the next step)   finds the drafts that they could have, chooses how many are
//                                     worth their time, and sets answers[i].drafts
//   note_answer(), note_step()        learn what was accepted, and how long it took
//
// A drafter that makes drafts ahead needs to know earlier: then offer() chooses for the step after
// the one that is offered, and ahead() says what to make for it:
//
//   offer(n): gives step n what was made for it, chooses for n + 1 -> ahead() -> drafts are made
//
// A step with prompts shows nothing about drafts. So it belongs to no trial, and a trial under way
// continues behind it.
//
// Such a drafter follows requests at a cost. If steps have no drafts, it continues only as long as
// that may pay: the cost is taken from the credit of trials. When that is used up the drafter
// stops, and begins again with new requests when the credit has grown. Prompts are followed, too:
// each step with drafts made ahead has to gain its part of that.
//
// Beside a drafter that makes drafts ahead there may be one whose drafts are free
// (offered_drafts.h). A step has drafts of both, or of the free one only, for which none are made
// ahead; the gate knows what steps of either way cost.
//
// It sees all answers of a step at once: a step of r times the rows takes less than r times as
// long, so a few drafts may not pay where many do. Numbers that could be better than the usual one
// are tried (base/trial_pace.h) as long as trials have lost less time than their credit. The
// constants that were tuned are in gate_tuning.h. Owner: a rank; each rank chooses on its own, but
// from the answers of all ranks. Thread: engine. After construction only begin() and state()
// allocate.
#pragma once

#include <optional>
#include <span>
#include <utility>

#include "base/trial_pace.h"
#include "policy/scheduler/step_times.h"
#include "policy/speculation/common_step.h"
#include "policy/speculation/draft_costs.h"
#include "policy/speculation/gate_buckets.h"
#include "policy/speculation/gate_state.h"
#include "policy/speculation/offered_drafts.h"
#include "policy/speculation/prompt_following_cost.h"

namespace hocket {

class SpeculationGate {
 public:
  using Options = OfferedDrafts::Options;
  explicit SpeculationGate(Options options);

  // As OfferedDrafts.
  void begin(int seat, int max_len) { drafts_.begin(seat, max_len); }
  void end(int seat) { drafts_.end(seat); }

  // The next step.
  struct Offer {
    int64_t total_keys = 0;  // the lengths of all answers together
    int max_rows = 0;        // rows of all drafts together
    // Those of other ranks, which wait for this one, and the drafts that they had in the last step.
    int num_other_answers = 0, num_other_drafts = 0;
    uint64_t number = 0;         // that of the step; all ranks that share it have the same
    bool is_decode_only = true;  // as Step::is_decode_only will be
    bool last_was_noted = true;  // the step that was noted last is the one before it
  };
  // Sets the drafts of the next step. `answers` has at most num_seats elements.
  void offer(const Offer& step, std::span<GateAnswer> answers);
  // Call it in place of offer() if all answers end with this step: it has no drafts, and the number
  // that was chosen for later steps stays. A drafter that does not rest will follow, even if the
  // last choice was that it should not, so that prompts of such steps have its rows, too.
  void offer_nothing(const Offer& step);
  // Says what a drafter that drafts_ahead() makes for the step after the one that was offered last.
  struct DraftsAhead {
    bool follows = true;  // it computes its rows for the tokens that became known in the step
    bool follows_prompts = true;  // it does so at least if some of them are tokens of prompts
    int num_drafts = 0;           // drafts of each answer that are made from them
  };
  DraftsAhead ahead() const;
  // True if that step has drafts that are made ahead, or is for a trial, which may be one of no
  // drafts. Then the step before has to be committed first.
  bool needs_commit() const { return next_.num_drafts > 0 || next_.is_trial; }

  // As OfferedDrafts.
  void note_answer(int seat, int num_drafts, int num_accepted) {
    drafts_.note_answer(seat, num_drafts, num_accepted);
  }
  struct Step {
    int num_answers = 0, num_drafts = 0, num_tokens = 0;
    int num_other_answers = 0;  // as in Offer
    int64_t total_keys = 0;     // as in Offer
    double us = 0;              // from the end of the step before to its end
    // True if it had rows of answers and their drafts only, and began right after the step before.
    bool is_decode_only = false;
    bool overlaps = false;  // it was made before the step before it had ended
    // True if rows of a drafter that drafts_ahead() were computed in this time, which took
    // making_us.
    bool follows = false;
    double making_us = 0;
  };
  void note_step(const Step& step);

  GateState state() const;

 private:
  using Candidate = OfferedDrafts::Candidate;
  using DraftSet = OfferedDrafts::DraftSet;
  // Gains are in tokens of each answer; a step without drafts brings one.
  struct Estimate {
    int num_drafts = 0;
    double gain = 0;
    // The gain if acceptance and cost are better than measured by kGate.trial_errors.
    double best_case = 0;
    double worst_case = 0;  // the gain, less one standard error of its difference to the usual one
    double tokens = 1;      // as in GateChoice
    DraftCosts::Cost cost;
  };
  // The choice for the next step of a drafter that drafts_ahead().
  struct Next {
    int num_drafts = 0;  // sum over all answers
    bool is_trial = false;
    DraftsAhead ahead;
  };

  // Judges the candidates, and chooses one. Ranks wait for each other, so times and tokens are
  // those of all ranks.
  Estimate judge(const GateBucket& bucket, DraftWay way, const Candidate& candidate) const;
  std::pair<Estimate, Estimate> judge_all(const GateBucket& bucket, DraftWay way,
                                          double other_gain) const;
  Estimate choose(GateBucket& bucket, DraftWay way, double other_gain);
  // A number of drafts to try, and what it may gain beyond the usual one.
  struct TrialCandidate {
    int num_drafts = -1;
    double gain = 0;
    bool is_new = false;  // its cost was hardly measured
  };
  bool is_time_without_drafts_old(const GateBucket& bucket, DraftWay way,
                                  const Estimate& usual) const;
  TrialCandidate best_trial_candidate(const GateBucket& bucket, DraftWay way,
                                      const Estimate& usual) const;
  bool may_gain(const GateBucket& bucket, DraftWay way, const Estimate& usual,
                int num_drafts) const;
  int try_one(GateBucket& bucket, DraftWay way, const Estimate& usual);

  void offer_with_prepared(GateBucket& bucket, const Offer& step, std::span<GateAnswer> answers);
  void postpone_trial(const GateBucket& bucket);
  void choose_drafts_ahead(GateBucket& bucket, const Offer& step,
                           std::span<const GateAnswer> answers, double free_gain);
  bool all_play_none(uint64_t number) const;
  void note_prompts(const Step& step);
  void share_out(int num_drafts, std::span<GateAnswer> answers);
  double tokens_an_answer(const Step& step) const;
  void note_step(const Step& step, int num_other_drafts);
  void note_waiting_step(const Offer& next);
  void note_gain(const GateBucket& bucket, const Step& step, int num_drafts, bool is_trial);
  void note_plain(GateBucket& bucket, double us);
  GateBucket& bucket_for(const CommonAnswers& answers, int64_t total_keys);

  OfferedDrafts drafts_;
  StepTimes plain_times_;  // times of steps without drafts; the reference of all costs
  GateBuckets buckets_;
  double growth_ = kGate.growth;  // that of the size that was measured last
  GateTotals totals_;

  TrialPace pace_;
  const GateBucket* trial_of_ = nullptr;  // the size of the trial under way
  DraftWay trial_way_ = DraftWay::now;
  int trial_drafts_ = 0;   // its number of drafts
  bool may_try_ = true;    // the step that is offered may be one of a trial
  bool is_trial_ = false;  // the step that was offered is one
  // The last step was one, or all ranks had none in it.
  bool was_apart_ = false;
  // How often a way has left a trial to the other one since its own last trial.
  int num_yielded_ = 0;
  double credit_ = kGate.first_credit;
  // Drafts of the step that was offered, and how many of them are expected to be accepted.
  int num_offered_ = 0;
  double expected_ = 0;
  CommonStep common_;            // the step that was offered
  std::optional<Step> waiting_;  // until the other ranks tell which drafts they had in it
  Next next_;
  bool has_common_none_ = false;  // no rank has drafts in the step that was offered
  DraftWay way_ = DraftWay::now;  // for the step that was offered
  bool rests_ = false;            // the credit was used up, and has not grown enough since
  PromptFollowingCost following_;
  double last_plain_us_ = 0;  // time of the last step, had it had no drafts; 0: unknown
};

}  // namespace hocket
