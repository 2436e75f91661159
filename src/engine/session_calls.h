// Saves, restores and ends sessions by name, as clients ask (Engine::change_session), with all
// ranks of this process and the lists of tokens in files.
// Thread: any; a call waits for others of its session or name, unless it only finds.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/busy_sessions.h"
#include "engine/engine.h"
#include "engine/rank_loop.h"
#include "engine/rank_sessions.h"
#include "engine/session_files.h"

namespace hocket {

class SessionCalls {
 public:
  struct Options {
    std::shared_ptr<FileStore> files;  // null: there is no folder
    // Reads and writes lists of tokens, each within a time limit; null if there is no folder. It is
    // apart from that of the store, so that a client with many sessions on a slow disk runs into
    // its own limit and delays no pages. It has Engine::kMaxSessionCalls threads, so that clients
    // whose calls do not hang find one free.
    std::shared_ptr<TimedCalls> calls;
    PageKey form{};  // that of the pages (CacheTier::Options)
    // Returns the rank to which a session is restored.
    std::function<Result<int>(const SessionTokens&)> choose;
  };
  // The ranks outlive it.
  SessionCalls(Options options, const std::vector<std::unique_ptr<RankLoop>>& ranks)
      : options_(std::move(options)),
        finds_(options_.files ? FileStore::calls_for(options_.files->folder(), Engine::kFindWait)
                              : nullptr),
        ranks_(ranks) {}

  // Waits at most Engine::kSessionWait for other calls, and as long for the ranks. Errors: those of
  // Engine::change_session.
  Result<SessionResult> change(const SessionRequest& ask);

 private:
  // Calls that touch files share it, so that the session is busy until a file that hangs has ended.
  using Hold = std::shared_ptr<const BusySessions::Hold>;
  Result<SessionResult> save(const SessionRequest& ask, const Hold& hold);
  Result<SessionResult> restore(const SessionRequest& ask, const Hold& hold);
  Result<SessionResult> end(const SessionRequest& ask, const Hold& hold);
  Result<SessionResult> find(const SessionRequest& ask);
  Result<SessionResult> find_saved(const SessionRequest& ask);
  Result<SessionTokens> read_saved(const SessionRequest& ask, const Hold& hold);
  SessionFiles session_files() const;  // Precondition: there is a folder
  Result<std::vector<std::optional<RankSession>>> ask_ranks(const SessionRequest& ask,
                                                            Duration limit = Engine::kSessionWait);
  template <class T>
  Result<T> with_files(const Hold& hold,
                       std::move_only_function<Result<T>(const SessionFiles&)> call,
                       size_t num_bytes = 0) const;

  const Options options_;
  // Looks for lists of tokens, apart from options_.calls, whose callers may wait longer; null if
  // there is no folder.
  const std::shared_ptr<TimedCalls> finds_;
  const std::vector<std::unique_ptr<RankLoop>>& ranks_;
  BusySessions busy_{Engine::kMaxSessionsOfClient};
};

}  // namespace hocket
