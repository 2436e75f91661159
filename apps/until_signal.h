// Waiting for SIGTERM or SIGINT in the main thread, and the end that follows.
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/signal_listener.h"
#include "server/server.h"

namespace hocket {

// The time in which the remaining requests are cut off and threads end, after the time that
// requests had to end by themselves. Then the process ends even if some threads have not.
inline constexpr Duration kEndMargin = std::chrono::seconds(10);

// Functions that serve_until_signal() calls while the server serves, on its own thread.
struct Meanwhile {
  std::function<Result<void>()> poll;  // a few times a second; an error ends the service
  std::function<void(int)> on_signal;  // before the server drains or reloads
  Duration others{};  // how long ranks that this process started may take to end, after the drain
};

// Serves until a signal, then drains. SIGHUP only reads keys and certificates again, unless it says
// that the terminal was closed. Requests under way get `shutdown_seconds` to end. Calls
// signals.hand_over(). Returns 0 after a full drain, 1 when requests had to be aborted, otherwise
// the status of the error that ended the service: 5 when this rank is lost for good, 6 when the
// watchdog found the engine hanging. Then the caller has meanwhile.others + kEndMargin to end its
// own threads and processes.
int serve_until_signal(Server& server, SignalListener& signals, double shutdown_seconds,
                       const Meanwhile& meanwhile = {});

}  // namespace hocket
