#include "server/health.h"

namespace hocket {

Result<void> Health::ready() const {
  if (draining_) return fail(ErrorCode::shutting_down, "the server is shutting down");
  if (!loaded_) return fail(ErrorCode::loading, "the model is being loaded");
  return {};
}

Result<void> Health::ready(const EngineStats& engine) const {
  HOCKET_TRY_VOID(ready());
  if (engine.lost) return fail(*engine.lost);
  return {};
}

Result<void> Health::healthy(const EngineStats& engine) const {
  HOCKET_TRY_VOID(ready(engine));
  if (!engine.busy || engine.seconds_since_last_step <= limits_.step_seconds_max) return {};
  return fail(ErrorCode::watchdog,
              "the engine has work and made no step for {:.1f} s (healthy: at most {} s)",
              engine.seconds_since_last_step, limits_.step_seconds_max);
}

Result<void> Health::watchdog(const EngineStats& engine) const {
  if (limits_.watchdog_seconds <= 0 || !engine.busy ||
      engine.seconds_since_last_step <= limits_.watchdog_seconds)
    return {};
  return fail(error(ErrorCode::watchdog, "the engine has work and made no step for {:.1f} s",
                    engine.seconds_since_last_step)
                  .with_fix("restart the server; --watchdog-timeout SECONDS waits longer"));
}

}  // namespace hocket
