// Decides, together with the other ranks, when experts move and when a layer changes. It has no
// thread: votes carry all that ranks have to agree on (BalanceVoter), so all are in the same phase
// after the same exchange of votes:
//
//   counting    rows count the experts that they choose    -> after num_iterations steps
//   gathering   each vote has some of its rank's counts; all add them up    -> all are here
//   planning    every rank works out the changes, the same ones    -> all have done so
//               rank 0 says whether they are worth it: if not, counting
//   moving      ranks load the experts of a layer; when the votes of all say that it is loaded, the
//               next step of all begins with the change. Then the next layer    -> counting
//
// The changes are worth it if the time that they save in the next kHorizon, at the speed and with
// the rows of the steps since the last check, is more than they cost. If a rank cannot load, all
// give up the layers that are left. After each check that ended so, twice as many steps pass before
// the next.
//
// If ranks ask to leave, and the others may serve without them, the ranks plan and move the same
// way, with no check and no benefit, until the others have all experts (may_leave()). Thread:
// engine. Allocates only in construction, for log lines and for errors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/balance/expert_mover.h"
#include "engine/balance/moving_steps.h"
#include "engine/lockstep/lockstep.h"
#include "engine/stats/expert_stats.h"

namespace hocket {

class Rebalance final : public BalanceVoter {
 public:
  static constexpr Duration kHorizon = std::chrono::minutes(5);

  struct Options {
    int rank = 0;
    int num_counts = 0;             // layers * experts
    int64_t num_iterations = 1000;  // 0: experts move only if ranks leave
    // Returns true if these ranks may serve while the others are missing; empty: none may be.
    std::function<bool(const RankSet&)> are_enough{};
    int num_workers = 1;  // threads that compute on this rank
    const Clock* clock = nullptr;
  };
  // `mover` outlives it.
  Rebalance(const Options& options, ExpertMover& mover);

  // Begins a new epoch. In one without all ranks nothing moves by load.
  void restart(const RankSet& present);
  // Counts the rows of a step of this rank, after its commit.
  void note(const ExpertPass& pass);
  // Returns the experts that move before the step that was agreed on; null: none. If there are any,
  // moved() follows when the step is over.
  LayerMove* take_move();
  void moved() { mover_.moved(); }

  BalanceVote vote() override;
  void agreed(std::span<const BalanceVote> votes, std::span<const StepReport> reports,
              const Agreement& agreement) override;
  bool may_leave() const override { return others_are_ready_ && leaving_.has(options_.rank); }

 private:
  enum class Phase : uint8_t { counting, gathering, planning, moving };
  enum Flag : uint8_t { planned = 1, is_worth_it = 2, failed = 4 };

  bool all_of(std::span<const BalanceVote> votes, const auto& predicate) const;
  void begin_leave(const RankSet& leaving);
  void prepare_leave(bool agree, uint32_t changes);
  void count();
  void gather(std::span<const BalanceVote> votes);
  void decide(std::span<const BalanceVote> votes);
  void follow_moves(std::span<const BalanceVote> votes);
  // Seconds of kHorizon.
  struct MoveBenefit {
    double gain = 0, cost = 0;
  };
  MoveBenefit benefit_of(const ExpertChanges& changes) const;
  void start_over(bool gave_up);
  void give_up();

  const Options options_;
  ExpertMover& mover_;
  Phase phase_ = Phase::counting;
  uint32_t check_ = 0;    // number of this balance check
  int num_given_up_ = 0;  // checks in a row
  // The steps since the last check, as all ranks saw them.
  int64_t num_steps_ = 0, num_reports_ = 0;
  double experts_us_ = 0;  // time of the slowest rank, summed over steps
  MovingSteps steps_;
  TimePoint since_{};
  std::vector<uint64_t> mine_;      // [layers, experts] rows of this rank since the last check
  std::vector<uint64_t> gathered_;  // the same of all ranks, as of the last check
  std::vector<uint16_t> sent_;      // this rank's, as votes have them
  size_t next_count_ = 0;           // the first that the next votes have
  int64_t gathered_steps_ = 0;
  double gathered_experts_us_ = 0, gathered_seconds_ = 0;
  std::optional<MoveBenefit> benefit_;  // the changes' benefit, as this rank sees it
  int num_changed_ = 0;                 // layers, of those that change
  bool has_move_ = false;               // a layer changes with the next step
  std::optional<RankSet> present_;      // nullopt: all ranks
  bool is_smaller_ = false;             // some ranks are missing
  RankSet leaving_;                     // the ranks that ask to leave, if they may
  bool others_are_ready_ = false;       // to serve without them
};

}  // namespace hocket
