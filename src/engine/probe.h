// Reaches into an engine. Tests only.
#pragma once

#include "engine/engine_state.h"

namespace hocket {

class EngineProbe {
 public:
  // Of rank 0, which plans.
  static RankOverlap& overlap(Engine& engine) { return engine.state_->ranks.front()->overlap; }
  static Rank& rank(Engine& engine, size_t i) { return *engine.state_->ranks.at(i); }
  // Of several ranks.
  static LoopbackHub& hub(Engine& engine) { return *engine.state_->hub; }
};

}  // namespace hocket
