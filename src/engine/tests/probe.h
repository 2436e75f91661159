// Gives tests access to an engine's ranks. Tests only.
#pragma once

#include "engine/engine_state.h"

namespace hocket {

class EngineProbe {
 public:
  // Returns the overlap state of rank 0, which plans.
  static RankOverlap& overlap(Engine& engine) { return engine.state_->ranks.front()->overlap(); }
  static RankLoop& rank(Engine& engine, size_t i) { return *engine.state_->ranks.at(i); }
  // Returns the network of several ranks.
  static LoopbackHub& hub(Engine& engine) { return *engine.state_->hub; }
};

}  // namespace hocket
