// Gives tests access to an engine's ranks. Tests only.
#pragma once

#include <functional>
#include <utility>

#include "engine/local_engine.h"

namespace hocket {

class EngineProbe {
 public:
  // Makes rank 0, which plans, propose these plans in place of its planner's. Call it before a step
  // runs.
  static void propose_by(Engine& engine, std::function<PlanProposal(Phase)> proposer) {
    of(engine).ranks_.front()->overlap().proposer_ = std::move(proposer);
  }
  static RankLoop& rank(Engine& engine, size_t i) { return *of(engine).ranks_.at(i); }
  // Returns the network of several ranks.
  static LoopbackHub& hub(Engine& engine) { return *of(engine).hub_; }

 private:
  static LocalEngine& of(Engine& engine) { return dynamic_cast<LocalEngine&>(engine); }
};

}  // namespace hocket
