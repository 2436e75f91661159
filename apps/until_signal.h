// Waiting for SIGTERM or SIGINT in the main thread, and the end that follows.
#pragma once

#include <functional>

#include "base/clock.h"
#include "base/signal_listener.h"
#include "server/server.h"

namespace hocket {

// Beyond the time for requests, for what they need to be cut off and for threads to end. Then the
// process ends whatever they do.
inline constexpr Duration kEndMargin = std::chrono::seconds(10);

// What else there is to do while a server serves.   Thread: that of serve_until_signal.
struct Meanwhile {
  std::function<Result<void>()> poll;  // a few times a second; an error ends the service
  std::function<void(int)> on_signal;  // before the server drains or reloads
  Duration others{};  // that the ranks which this process started may take to end, after the drain
};

// Serves until a signal, then drains; SIGHUP reads keys and certificates again instead, but for one
// that says that the terminal was closed. What runs may end within `shutdown_seconds`. `signals`
// are handed over. Returns 0 after a full drain, 1 when requests had to be aborted, the status of
// the error that ended the service otherwise: 5 when this rank is lost for good, 6 when the
// watchdog found the engine hanging. What the caller still has to end may take
// meanwhile.others + kEndMargin.
int serve_until_signal(Server& server, SignalListener& signals, double shutdown_seconds,
                       const Meanwhile& meanwhile = {});

}  // namespace hocket
