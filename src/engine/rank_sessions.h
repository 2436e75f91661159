// Saves, restores and ends the sessions of one rank when clients ask for it (session_calls.h).
// Thread: engine.
#pragma once

#include <future>
#include <optional>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/tier/cache_tier.h"
#include "policy/scheduler/scheduler.h"

namespace hocket {

struct RankSession {
  SessionTokens kept;     // save: all of the session; restore: those that memory has now
  int64_t len = 0;        // find, end: number of tokens of the session
  int64_t saved_len = 0;  // save: number of first tokens that files can restore
  bool whole = false;     // save: memory has no tokens beyond saved_len
};
struct SessionCommand {
  SessionAction action = SessionAction::save;
  SessionKey session;
  SessionTokens tokens;  // restore: those to read back
  TimePoint deadline{};  // the caller waits for the answer until then
  // nullopt: the session is not known here (save, end, find), or too much is read already
  // (restore).
  std::promise<std::optional<RankSession>> answer;
};

class RankSessions {
 public:
  // A restore stops to read so long before its deadline, because the page under way and the step
  // in flight may take that long. Then it answers with the pages that it has.
  static constexpr Duration kAnswerTime = Engine::kSessionWait / 10;

  // `tier` is null if there is none. All outlive it.
  RankSessions(Scheduler& scheduler, CacheTier* tier, int page_tokens, const Clock& clock)
      : scheduler_(scheduler), tier_(tier), page_tokens_(page_tokens), clock_(clock) {}
  // Runs the command and answers it: a save or a restore when its files are written or read.
  void carry_out(SessionCommand& order);

 private:
  using Answer = std::shared_ptr<std::promise<std::optional<RankSession>>>;
  void save(const SessionCommand& order, const Answer& answer);
  void restore(const SessionCommand& order, const Answer& answer);

  Scheduler& scheduler_;
  CacheTier* const tier_;
  const int page_tokens_;
  const Clock& clock_;
};

}  // namespace hocket
