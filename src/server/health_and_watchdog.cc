#include "server/health_and_watchdog.h"

#include <string>

namespace hocket {
namespace {

// Returns a text such as "rank 1 is in forward, layer 17; rank 0 is in forward, layer 17, waiting
// for other ranks": first the ranks that delay others, then the waiting ones. Ranks without work
// are left out.
std::string places_of(const EngineStats& engine) {
  if (engine.ranks.size() < 2) return fmt::format("it is in {}", describe(engine.position));
  std::string first, then;
  for (size_t i = 0; i < engine.ranks.size(); ++i) {
    const RankStats& rank = engine.ranks[i];
    if (!rank.busy) continue;
    std::string& list = rank.position.waits ? then : first;
    list += fmt::format("{}rank {} is in {} since {:.1f} s", list.empty() ? "" : "; ", i,
                        describe(rank.position), rank.seconds_since_last_step);
  }
  return first.empty() || then.empty() ? first + then : first + "; " + then;
}

}  // namespace

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
  if (!engine.busy || engine.seconds_since_last_step <= limits_.max_step_seconds) return {};
  return fail(ErrorCode::watchdog,
              "the engine has work and made no step for {:.1f} s (healthy: at most {} s): {}",
              engine.seconds_since_last_step, limits_.max_step_seconds, places_of(engine));
}

Result<void> Health::watchdog(const EngineStats& engine) const {
  if (limits_.watchdog_seconds <= 0 || !engine.busy ||
      engine.seconds_since_last_step <= limits_.watchdog_seconds)
    return {};
  return fail(error(ErrorCode::watchdog, "the engine has work and made no step for {:.1f} s: {}",
                    engine.seconds_since_last_step, places_of(engine))
                  .with_fix("restart the server; --watchdog-timeout SECONDS waits longer"));
}

}  // namespace hocket
