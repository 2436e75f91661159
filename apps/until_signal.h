// Waiting for SIGTERM or SIGINT in the main thread, and the end that follows.
#pragma once

#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "base/clock.h"
#include "server/server.h"

namespace hocket {

// Blocks SIGTERM, SIGINT and SIGHUP in this thread and every thread made while it lives, so that
// only wait() sees them. Make it before any thread.
class SignalGuard {
 public:
  SignalGuard();
  // The signal that came within `seconds`, or 0.
  int wait(double seconds) const;

 private:
  sigset_t set_;
};

// While it lives, a signal but SIGHUP ends the process at once. Thread: one of its own, which
// waits.
class ExitOnSignal {
 public:
  // `why` is the last line of the log. What comes while it is `deaf` is passed over.
  ExitOnSignal(const SignalGuard& signals, int status, std::string why, Duration deaf = {});

 private:
  std::jthread thread_;
};

// What else there is to do while a server serves.   Thread: that of serve_until_signal.
struct Meanwhile {
  std::function<Result<void>()> poll;  // a few times a second; an error ends the service
  std::function<void(int)> on_signal;  // before the server drains or reloads
};

// Serves until a signal, then drains; SIGHUP reads keys and certificates again instead, but for one
// that says that the terminal was closed. What runs may end within `shutdown_seconds`; a second
// signal more than a second later exits at once (status 1). Returns 0 after a full drain, 1 when
// requests had to be aborted, the status of the error that ended the service otherwise: 5 when this
// rank is lost for good, 6 when the watchdog found the engine hanging.
int serve_until_signal(Server& server, const SignalGuard& signals, double shutdown_seconds,
                       const Meanwhile& meanwhile = {});

}  // namespace hocket
