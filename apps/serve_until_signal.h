// The main thread waits here for SIGTERM or SIGINT and then drains the server.
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/signal_listener.h"
#include "server/server.h"

namespace hocket {

// After the drain, the time in which remaining requests are aborted and threads end. When it is
// over, the process ends even if some threads have not.
inline constexpr Duration kEndMargin = std::chrono::seconds(10);

// Functions that serve_until_signal() calls while the server serves, on its own thread.
struct ServeHooks {
  std::function<Result<void>()> poll;  // a few times a second; an error ends the service
  std::function<void(int)> on_signal;  // before the server drains, and after it has reloaded
  Duration others{};  // time that ranks started by this process have to end, after the drain
};

// Serves until a signal, then drains; signals.deliver_to_wait() was called before. SIGHUP reads
// keys and certificates again; if the terminal was closed, it ends the service like SIGTERM.
// Requests under way get `shutdown_seconds` to end. Returns 0 after a full drain, 1 if requests had
// to be aborted, otherwise the status of the error that ended the service, as 5 if a rank is lost.
// Then the caller has hooks.others + kEndMargin to end its own threads and processes. If the engine
// hangs, it does not return: it writes the black box and ends the process with status 6.
int serve_until_signal(Server& server, SignalListener& signals, double shutdown_seconds,
                       const ServeHooks& hooks = {});

}  // namespace hocket
