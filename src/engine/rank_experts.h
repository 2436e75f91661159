// The counts of a rank's experts, and the objects that move them. Owner: RankStep. Thread: engine.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "engine/balance/expert_mover.h"
#include "engine/balance/rebalance.h"
#include "engine/flight.h"
#include "engine/stats/expert_stats.h"

namespace hocket {

struct RankParts;

// Returns how experts move to and from this rank; nullopt if they stay where they are. experts:
// null for a dense model; counts from now on if counts decide where experts move. Errors: those of
// rebalancer_of().
Result<std::optional<ExpertMover::Options>> mover_options(const ServerSettings& settings,
                                                          const Runner& runner, int rank,
                                                          ExpertStats* experts);

class RankExperts {
 public:
  // `runner` and `clock` outlive it. wake: as ExpertMover::Options::wake.
  RankExperts(RankParts& parts, Runner& runner, int rank, const Clock& clock,
              const std::function<void()>& wake);

  ExpertStats* stats() const { return stats_; }              // null for a dense model
  ExpertMover* mover() const { return mover_.get(); }        // null if experts never move
  Rebalance* rebalance() const { return rebalance_.get(); }  // null without a mover
  size_t num_counts() const { return stats_ != nullptr ? stats_->num_counts() : 0; }
  // Returns the experts that move before the next pass; null: none.
  LayerMove* take_move() { return rebalance_ ? rebalance_->take_move() : nullptr; }
  // Notes a step that has computed.
  void note(const Flight& flight);

 private:
  ExpertStats* const stats_;
  const std::unique_ptr<ExpertMover> mover_;
  const std::unique_ptr<Rebalance> rebalance_;
};

}  // namespace hocket
