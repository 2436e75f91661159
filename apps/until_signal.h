// Waiting for SIGTERM or SIGINT in the main thread, and the end that follows.
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/signal_listener.h"
#include "server/server.h"

namespace hocket {

// After the time for requests, the time in which they are cut off and threads end. Then the process
// ends even if some have not.
inline constexpr Duration kEndMargin = std::chrono::seconds(10);

// What else there is to do while a server serves.   Thread: that of serve_until_signal.
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
