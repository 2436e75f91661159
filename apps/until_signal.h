// Waiting for SIGTERM or SIGINT in the main thread, and the end that follows.
#pragma once

#include <csignal>

#include "server/server.h"

namespace hocket {

// Blocks SIGTERM and SIGINT in this thread and every thread made while it lives, so that only
// wait() sees them. Make it before any thread.
class SignalGuard {
 public:
  SignalGuard();
  // The signal that came within `seconds`, or 0.
  int wait(double seconds) const;

 private:
  sigset_t set_;
};

// Serves until a signal, then drains: what runs may end within `shutdown_seconds`; a second signal
// exits at once (status 1). Returns 0 after a full drain, 1 when requests had to be aborted, 6 when
// the watchdog found the engine hanging.
int serve_until_signal(Server& server, const SignalGuard& signals, double shutdown_seconds);

}  // namespace hocket
