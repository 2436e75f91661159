// How ranks that share the experts keep step: before each step every rank says what it would run,
// and all know then who computes and how rows travel. While it samples, the words of the next step
// are already on their way:
//
//   rank 0   forward 6 | open: 3 answers | sample 6, commit, reply | settle -.- schedule 7, slotted
//   rank 1   forward 6 | open: nothing   |                         | settle -+- 7, no rows
//   rank 2   forward 6 | open: nothing   |                         | settle -'- 7, no rows
//
// With its word each rank reports on the step that it has just played, and rank 0 says how the next
// one is to be played: one plan if prompts are computed, another if not. All play what rank 0 said,
// so a plan changes at the border of a step, on all ranks together.
//
// What was agreed binds. Who comes after open() waits for the step after, unless somebody begins
// prompts anyway; who ends after it leaves a step without rows. Nobody has rows: nobody runs,
// nothing is opened, and each sleeps until it has work or another begins an agreement. So nobody
// waits for a message that another decided not to send.
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
#include "cluster/pulse.h"
#include "compute/comm/all_to_all.h"
#include "compute/moe/dispatcher.h"
#include "compute/overlap/order_table.h"
#include "compute/overlap/plan.h"
#include "compute/overlap/step_report.h"
#include "policy/routing/request_router.h"
#include "policy/scheduler/outside.h"
#include "policy/scheduler/prefill_delayer.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

// How a step should be played; rank 0's word counts.
struct PlanProposal {
  PlanId id = PlanId::none;
  bool is_shadow = false;  // to see what it takes (planner.h)

  bool operator==(const PlanProposal&) const = default;
};

// What a rank says of a step to come, and of the one that it has just played.
struct StepWish {
  Prospect work;
  RankLoad load;
  int prompt_step_rows = 0;  // of prompts and answers, in a step in which prompts are computed
  std::array<PlanProposal, kNumPhases> plans;  // by Phase
  StepReport report;
};

// One rank's part. Thread: engine, but for heard(). After construction nothing allocates.
class Lockstep final : public Outside {
 public:
  struct Options {
    Pulse* pulse = nullptr;      // told of steps that begin and end; outlives it; may be null
    int max_delayed_passes = 0;  // of prompts, PrefillDelayer; equal on all ranks
    double low_usage = 0;        // a rank that uses less of its KV pages need not delay; 0: none
    // What plans are made of; equal on all ranks and outlives it.
    const OrderTable* orders = &OrderTable::builtin();
    bool may_leave_others = true;  // RankNetwork::may_leave_others()
  };
  Lockstep(int num_ranks, const Options& options);
  // A new epoch: steps count from 0, over these. Both outlive all calls until the next rebind().
  void rebind(Transport& transport, AllToAll& exchange);

  int rank() const { return exchange_->rank(); }

  // Between forward and sample: begins the agreement on the next step, waiting for nobody. Nothing
  // after an error, or when this step is the last.
  void open(const StepWish& wish);
  // Before schedule(): hears the others, which takes as long as the slowest of them needs to get
  // here. What open() said counts; where nothing is under way, or nobody had rows then and this
  // rank has by now, an agreement is made with `now`. False: a rank was lost, see lost().
  bool settle(const StepWish& now);

  // As was settled.
  bool may_begin() override { return may_begin_; }
  bool agree(const Batch& mine) override;
  // How the step is to be played, and whether this rank stops after it: all have asked to, or it
  // alone may, has, the others know that, and nobody has rows any more.
  const PassId& pass() const { return pass_; }
  const Plan& plan() const { return plan_; }  // its parts are those of the pass
  bool is_shadow() const { return is_shadow_; }
  bool ends() const { return ends_; }
  // Steps that should have been played by a plan that nobody here knows; since the start.
  uint64_t num_unknown_plans() const { return num_unknown_plans_; }
  // What all said with the last agreement: of the step before it, each rank's; some may be invalid.
  std::span<const StepReport> reports() const { return reports_; }
  // Rows of the next step, if it is of this phase, on the rank that has most: here as `mine` says,
  // elsewhere as was said last. 0: none is in sight.
  int foresee(Phase phase, const StepWish& mine) const;

  // Another rank that asks to stop, so that nothing new should begin; -1: none.   Thread: any.
  int leaver() const { return leaver_.load(std::memory_order_relaxed); }
  // What a rank said of itself when it was last heard.   Thread: any.
  RankLoad heard(int rank) const;

  // The first failed exchange; nothing is agreed from then on.
  const std::optional<Error>& lost() const { return error_; }
  // Whom it blames; -1: nobody in particular.
  int lost_peer() const { return liar_ >= 0 ? liar_ : exchange_->lost_peer(); }
  void fail_with(Error why);

  // From the next agreement on, this rank asks to stop.
  void ask_to_end() { asks_to_end_ = true; }
  // Between open() and settle().
  bool is_open() const { return under_way_; }
  // Whether there is something to settle: an agreement is under way here or begun by another, or
  // none can be made any more.
  bool called();
  // Until called(), Transport::wake() or for `most`.
  void wait(Duration most);

 private:
  // In host order: ranks of other byte orders have no arithmetic in common anyway.
  struct Word {
    uint32_t rows = 0;      // of answers
    uint8_t begins = 0;     // a prompt may begin
    uint8_t continues = 0;  // one in chunks goes on
    uint8_t ends = 0;       // asks to stop after this step
    uint8_t shadows = 0;    // of plans: bit 0, that of a step with prompts; bit 1, of answers
    uint8_t votes = 0;      // bit 0: PrefillVote::starves
    uint8_t takes_requests = 0;
    uint16_t zero = 0;  // for later
    int32_t load_requests = 0;
    int64_t load_tokens = 0;
    uint32_t prompt_step_rows = 0;
    std::array<uint32_t, kNumPhases> plans{};  // PlanId, by Phase; rank 0's count
    StepReport report;
  };
  struct Size {
    int rows = 0, prompt_step_rows = 0;
  };
  struct Load {
    std::atomic<bool> takes_requests{true};
    std::atomic<int> num_requests{0};
    std::atomic<int64_t> num_tokens{0};
  };

  Result<void> start(const StepWish& wish);
  Result<void> hear(const StepWish& now);
  Result<Word> word_of(int rank);
  void take_in(int rank, const Word& said);
  void conclude();
  void adopt(const Word& planner);
  void forget_loads();
  void note_took();
  Duration expected() const;
  static bool has_rows(const Prospect& work) {
    return work.num_decoding > 0 || work.begins || work.continues;
  }

  const Options options_;
  Transport* transport_ = nullptr;
  AllToAll* exchange_ = nullptr;
  PassId pass_;  // settled, as are the next two
  Plan plan_;
  bool is_shadow_ = false;
  uint64_t num_unknown_plans_ = 0;
  bool under_way_ = false, computes_ = false, may_begin_ = false, extends_ = false;
  bool asks_to_end_ = false, has_asked_ = false, ends_ = false;
  std::atomic<int> leaver_{-1};
  std::optional<Error> error_;
  int liar_ = -1;  // whose word could not be used
  Word mine_;      // of the agreement under way
  PrefillDelayer delayer_;
  std::vector<PrefillVote> votes_;               // [ranks]
  std::vector<Load> loads_;                      // [ranks]
  std::vector<Size> sizes_;                      // [ranks]
  std::vector<StepReport> reports_;              // [ranks]
  std::vector<AllToAll::Parts> parts_;           // [ranks]
  std::optional<TimePoint> begun_;               // the step with rows that runs
  std::array<std::optional<Duration>, 2> took_;  // the last step, by mode
};

}  // namespace hocket
