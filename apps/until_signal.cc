#include "apps/until_signal.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "base/log.h"

namespace hocket {

SignalGuard::SignalGuard() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

int SignalGuard::wait(double seconds) const {
  const auto whole = static_cast<time_t>(seconds);
  const timespec timeout = {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  const int signal = sigtimedwait(&set_, nullptr, &timeout);
  return signal > 0 ? signal : 0;
}

int serve_until_signal(Server& server, const SignalGuard& signals, double shutdown_seconds) {
  int signal = 0;
  while ((signal = signals.wait(1.0)) == 0)
    if (const Result<void> alive = server.watchdog(); !alive) {
      log::error("{}", describe(alive.error()));
      std::_Exit(exit_status(alive.error().code));
    }
  log::info("signal {}: draining, up to {:.0f} s; a second one exits at once", signal,
            shutdown_seconds);
  std::jthread second([&](const std::stop_token& stop) {
    while (!stop.stop_requested())
      if (signals.wait(0.1) != 0) {
        log::warning("second signal: exiting without waiting for running requests");
        std::_Exit(1);
      }
  });
  const bool complete = server.drain(from_seconds(shutdown_seconds));
  log::info("stopped: {}", complete ? "every request was answered" : "some requests were aborted");
  return complete ? 0 : 1;
}

}  // namespace hocket
