// Gives tests access to an engine's ranks. Tests only.
#pragma once

#include "engine/local_engine.h"

namespace hocket {

class EngineProbe {
 public:
  // Returns the overlap state of rank 0, which plans.
  static RankOverlap& overlap(Engine& engine) { return of(engine).ranks_.front()->overlap(); }
  static RankLoop& rank(Engine& engine, size_t i) { return *of(engine).ranks_.at(i); }
  // Returns the network of several ranks.
  static LoopbackHub& hub(Engine& engine) { return *of(engine).hub_; }

 private:
  static LocalEngine& of(Engine& engine) { return dynamic_cast<LocalEngine&>(engine); }
};

}  // namespace hocket
