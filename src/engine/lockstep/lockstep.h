// Keeps ranks that share the experts in step. Before each step every rank sends a vote to all: its
// proposal for that step. From all votes each rank derives the same answer to two questions: which
// ranks compute, and how rows travel. The votes for the next step travel while the ranks sample:
//
//   rank 0   forward 6 | begin: 3 answers | sample 6, commit, reply | finish -.- schedule 7
//   rank 1   forward 6 | begin: nothing   |                         | finish -+- 7, no rows
//   rank 2   forward 6 | begin: nothing   |                         | finish -'- 7, no rows
//
// A vote also reports the times of the step that the rank has just played. The vote of the lead,
// the lowest rank that is present, proposes two plans for the next step: one in case prompts are
// computed, one in case none are. All ranks play the lead's plan, so a plan changes on all ranks at
// the same step. Ranks that are missing in an epoch do not vote.
//
// Each rank does what was agreed. A request that arrives after begin_agreement() waits for the step
// behind the next one, unless some rank begins prompts in the next one anyway. A rank whose
// requests have all ended since then runs that step without rows. If no rank has rows, no rank runs
// a step, and each waits until it has work or another rank begins an agreement. So no rank waits
// for a message that another decided not to send.
// Source: docs/contracts/expert_parallel.md, "Lockstep".
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cluster/own_heartbeat.h"
#include "compute/comm/all_to_all.h"
#include "compute/moe/dispatcher.h"
#include "compute/overlap/order_table.h"
#include "compute/overlap/plan.h"
#include "compute/overlap/step_report.h"
#include "engine/lockstep/agreed_step.h"
#include "engine/lockstep/hang_limit.h"
#include "engine/lockstep/vote_carrier.h"
#include "engine/lockstep/voted_loads.h"
#include "policy/routing/request_router.h"
#include "policy/scheduler/prefill_delayer.h"
#include "policy/scheduler/scheduler.h"
#include "policy/scheduler/scheduler_hooks.h"

namespace hocket {

// A plan for the next step. Only the lead's proposal counts.
struct PlanProposal {
  PlanId id = PlanId::none;
  bool is_trial = false;  // played only to measure it (planner.h)

  bool operator==(const PlanProposal&) const = default;
};

// A rank's proposal for the next step, and its report on the last one.
struct StepProposal {
  NextStepForecast work;
  int num_last_drafts = 0;  // drafts of the last step
  RankLoad load;
  int prompt_step_rows = 0;  // rows of prompts and answers, if prompts are computed
  int module_passes = 0;  // passes of the module that guesses, before the step (module_drafter.h)
  bool overlaps = false;  // steps should overlap; only the lead's counts
  float overlapped_share = 1;   // as OverlapTiming::overlapped_share(); only the lead's counts
  bool vetoes_overlap = false;  // no step should overlap; any rank's counts
  std::array<PlanProposal, kNumPhases> plans;  // indexed by Phase
  StepReport report;

  // Drafts in the next step, which are rows beside those of `work`: as many as in the last one.
  int expected_drafts() const { return work.num_decoding > 0 ? num_last_drafts : 0; }
};

// A rank's vote on moving experts, beside its proposal (engine/balance/rebalance.h). In host byte
// order.
struct BalanceVote {
  uint32_t check = 0;    // number of the balance check
  uint32_t changes = 0;  // fingerprint of what this rank would change
  uint8_t phase = 0, flags = 0;
  uint16_t num_loaded = 0;            // layers whose experts are loaded, of those that change
  std::array<uint16_t, 58> counts{};  // some of the rows that chose each expert
};
static_assert(sizeof(BalanceVote) == 128);

// The agreements beside steps. A rank may exchange votes several times before a step, so these
// functions are called for each exchange, on all ranks in the same sequence. Thread: engine.
class BalanceVoter {
 public:
  virtual ~BalanceVoter() = default;
  virtual BalanceVote vote() = 0;
  struct Agreement {
    bool computes = false;  // a step follows in which some rank has rows
    RankSet leaving;        // ranks that ask to stop while others continue
  };
  // votes and reports [ranks].
  virtual void agreed(std::span<const BalanceVote> votes, std::span<const StepReport> reports,
                      const Agreement& agreement) = 0;
  // Returns true if this rank asks to stop and the others have taken over its experts.
  virtual bool may_leave() const = 0;
};

// One rank's side of the agreement. Thread: engine, except stopping_peer() and loads(). Allocates
// only in construction.
class Lockstep final : public SchedulerHooks {
 public:
  struct Options {
    OwnHeartbeat* own_heartbeat = nullptr;  // gets begin and end of steps; outlives it; may be null
    int max_delayed_passes = 0;             // limit of PrefillDelayer; equal on all ranks
    // The orders that plans name; equal on all ranks; outlives it.
    const OrderTable* orders = &OrderTable::builtin();
    bool others_can_serve = true;  // RankNetwork::others_can_serve()
    bool pauses_others = false;    // RankNetwork::pauses_others(): it leaves when no rank has rows
    BalanceVoter* balance_voter = nullptr;  // outlives it; null on all ranks or on none
  };
  Lockstep(int num_ranks, const Options& options);
  // Starts a new epoch: steps count from 0 over this transport and exchange. Both must outlive all
  // calls until the next rebind().
  void rebind(Transport& transport, AllToAll& exchange);

  int rank() const { return exchange_->rank(); }
  // Returns the lead of this epoch, the lowest rank that is in it: its plans count. Thread: any.
  int lead() const { return lead_.load(std::memory_order_relaxed); }

  // Called between forward and sample: sends this rank's vote for the next step without waiting.
  // Does nothing after an error, or if this step is the last.
  void begin_agreement(const StepProposal& mine);
  // Called before schedule(): waits for the votes of all ranks. The proposal given to
  // begin_agreement() counts. If no agreement is under way, or it found no rows and this rank has
  // got some since, another agreement is made with `now`. Returns false if a rank was lost, see
  // lost().
  bool finish_agreement(const StepProposal& now);

  // Answer the scheduler by the finished agreement.
  bool may_begin() override { return agreed_.may_begin; }
  bool any_rank_computes(const Batch& mine) override;
  // Returns the step that was agreed on last.
  const AgreedStep& agreed() const { return agreed_; }
  // Returns how many steps since the start had a plan that this rank does not know.
  uint64_t num_unknown_plans() const { return num_unknown_plans_; }
  // Returns the reports of all ranks on the step before the last agreement; some may be invalid.
  std::span<const StepReport> reports() const { return reports_; }
  // Returns the expected rows of the next step, if it is of this phase, on the rank that has
  // most: this rank's by `mine`, those of others by their last votes. 0 if there are none.
  int expected_rows(Phase phase, const StepProposal& mine) const;

  // Returns another rank that asks to stop; while there is one, no request should begin. -1: none.
  // Thread: any.
  int stopping_peer() const { return stopping_peer_.load(std::memory_order_relaxed); }
  // Returns the loads of all ranks, by their last votes. Thread: any, of the function and of of().
  const VotedLoads& loads() const { return loads_; }

  // Returns the first failed exchange; no agreement is made after it.
  const std::optional<Error>& lost() const { return error_; }
  // Returns the rank at fault; -1 if no single rank is.
  int lost_peer() const { return bad_peer_ >= 0 ? bad_peer_ : exchange_->lost_peer(); }
  void fail_with(Error why);

  // Makes this rank ask to stop, from the next agreement on.
  void ask_to_end() { wants_end_ = true; }
  // Sets whether the forward thread computes the steps that were agreed on. Then that thread
  // has the exchange during each pass (carrier()), and reports the begin of steps to the heartbeat.
  void set_overlapped(bool overlapped) { is_overlapped_ = overlapped; }
  // Returns what carries the votes of this rank and gives the exchange to each pass while that
  // runs.
  VoteCarrier& carrier() { return carrier_; }
  // Notes how long a step of this phase took, if the forward thread computes. rows: those that were
  // agreed on for it.
  void note_took(Phase phase, int rows, Duration took);

  // True between begin_agreement() and finish_agreement().
  bool is_under_way() const { return under_way_; }
  // True if finish_agreement() should run: an agreement is under way here, another rank began
  // one, or an error prevents all further ones.
  bool peer_waiting();
  // Waits for peer_waiting(), Transport::wake() or until `max_wait` is over.
  void wait(Duration max_wait);

 private:
  // A rank's message in an agreement. In host byte order: ranks of other orders are not supported.
  struct StepVote {
    uint16_t answers = 0;   // with rows in the step
    uint16_t drafts = 0;    // in the last step; as many are expected if there are answers
    uint8_t begins = 0;     // a prompt may begin
    uint8_t continues = 0;  // a chunked prompt continues
    uint8_t ends = 0;       // asks to stop after this step
    uint8_t trials = 0;     // is_trial of plans: bit 0 with prompts, bit 1 decode
    uint8_t takes_requests = 0;
    uint8_t module_passes = 0;
    uint8_t overlaps = 0;  // only the lead's counts
    uint8_t vetoes_overlap = 0;
    int32_t load_requests = 0;
    int64_t load_tokens = 0;
    uint32_t prompt_step_rows = 0;
    std::array<uint32_t, kNumPhases> plans{};  // PlanId, by Phase; only the lead's count
    float overlapped_share = 1;                // only the lead's counts
    uint32_t zero = 0;
    StepReport report;
    BalanceVote balance;
  };
  struct Size {
    int rows = 0, prompt_step_rows = 0;
  };

  void start(const StepProposal& proposal);
  void open_step();
  Result<void> exchange_votes(const StepProposal& now);
  Result<void> exchange_again(const StepProposal& now);
  Result<StepVote> vote_of(int rank);
  void record_vote(int rank, const StepVote& vote);
  void decide();
  bool may_leave_now() const;
  void adopt_plan(const StepVote& of_lead);
  void adopt_module_passes(int wanted, Phase phase_before);
  static bool has_rows(const NextStepForecast& work) {
    return work.num_decoding > 0 || work.begins || work.continues;
  }

  const Options options_;
  Transport* transport_ = nullptr;
  AllToAll* exchange_ = nullptr;
  AgreedStep agreed_;
  bool is_overlapped_ = false;
  uint64_t num_unknown_plans_ = 0;
  bool under_way_ = false;
  bool wants_end_ = false, end_was_voted_ = false;  // from now on; in the last agreement
  std::atomic<int> stopping_peer_{-1};
  std::optional<Error> error_;
  int bad_peer_ = -1;  // rank whose vote could not be read
  StepVote mine_;      // vote of the agreement under way
  PrefillDelayer delayer_;
  std::atomic<int> lead_{0};
  RankSet present_;                 // the ranks that vote
  std::vector<PrefillVote> votes_;  // [ranks that vote]
  VotedLoads loads_;
  std::vector<Size> sizes_;                // [ranks]
  std::vector<StepReport> reports_;        // [ranks]
  std::vector<StepReport> first_reports_;  // [ranks]; only in exchange_again()
  std::vector<BalanceVote> balances_;      // [ranks]
  VoteCarrier carrier_;
  HangLimit hang_limit_;
};

}  // namespace hocket
