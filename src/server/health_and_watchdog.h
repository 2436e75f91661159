// Decides if the server is alive, ready for requests, and healthy. The watchdog ends the process if
// its engine has work and makes no step for too long.
//
//   /livez    always 200: the process answers
//   /readyz   200 if loaded, not draining, and no rank is lost
//   /health   200 if ready, and the engine makes steps while it has work
//
// Thread: any.
#pragma once

#include <atomic>

#include "base/clock.h"
#include "base/result.h"
#include "engine/engine.h"

namespace hocket {

class Health {
 public:
  // max_step_seconds: if a busy engine is silent for longer, /health fails. watchdog_seconds: if it
  // is silent for longer, the process should end (exit 6); 0: never.
  struct Limits {
    double max_step_seconds = 10;
    double watchdog_seconds = 300;
  };
  explicit Health(Limits limits) : limits_(limits) {}

  void set_loaded() { loaded_ = true; }
  void set_draining() { draining_ = true; }
  bool draining() const { return draining_; }

  // Errors: loading, shutting_down.
  Result<void> ready() const;
  // Like ready(), and checks the engine. Errors: also lost_rank, naming the rank.
  Result<void> ready(const EngineStats& engine) const;
  // Errors: those of ready(), watchdog.
  Result<void> healthy(const EngineStats& engine) const;
  // Errors: watchdog if the process should end.
  Result<void> watchdog(const EngineStats& engine) const;

 private:
  const Limits limits_;
  std::atomic<bool> loaded_{false}, draining_{false};
};

}  // namespace hocket
