#include "apps/until_signal.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "base/black_box.h"
#include "base/log.h"

namespace hocket {
namespace {

constexpr double kPollSeconds = 0.25;
constexpr Duration kLastWords = std::chrono::seconds(2);  // for requests to end with the error
// A supervisor that signals all processes of a job reaches a rank twice: directly, and by the rank
// that started it.
constexpr Duration kSameSignal = std::chrono::seconds(1);

void reload(Server& server) {
  if (const Result<void> done = server.reload(); !done)
    log::error("reload: {}; what was read before goes on", describe(done.error()));
  else
    log::info("reload: keys and certificates are read again");
}

// The terminal that the server was started from has been closed.
bool hung_up(bool had_terminal) {
  return had_terminal && isatty(STDIN_FILENO) == 0;
}

}  // namespace

SignalGuard::SignalGuard() {
  sigemptyset(&set_);
  sigaddset(&set_, SIGTERM);
  sigaddset(&set_, SIGINT);
  sigaddset(&set_, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

int SignalGuard::wait(double seconds) const {
  const auto whole = static_cast<time_t>(seconds);
  const timespec timeout = {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  const int signal = sigtimedwait(&set_, nullptr, &timeout);
  return signal > 0 ? signal : 0;
}

ExitOnSignal::ExitOnSignal(const SignalGuard& signals, int status, std::string why, Duration deaf)
    : thread_([&signals, status, why = std::move(why),
               from = RealClock().now() + deaf](const std::stop_token& stop) {
        while (!stop.stop_requested())
          if (const int signal = signals.wait(0.1);
              signal != 0 && signal != SIGHUP && RealClock().now() >= from) {
            log::warning("signal {}: {}", signal, why);
            std::_Exit(status);
          }
      }) {}

int serve_until_signal(Server& server, const SignalGuard& signals, double shutdown_seconds,
                       const Meanwhile& meanwhile) {
  int signal = 0;
  const bool had_terminal = isatty(STDIN_FILENO) != 0;
  while ((signal = signals.wait(kPollSeconds)) == 0 ||
         (signal == SIGHUP && !hung_up(had_terminal))) {
    if (signal == SIGHUP) {
      reload(server);
      if (meanwhile.on_signal) meanwhile.on_signal(signal);
    }
    if (const Result<void> alive = server.watchdog(); !alive) {
      log::error("{}", describe(alive.error()));
      if (black_box::write(alive.error().message))
        log::error("what came before is in {}: hocket crash reads it", black_box::path());
      std::_Exit(exit_status(alive.error().code));
    }
    if (!meanwhile.poll) continue;
    if (const Result<void> good = meanwhile.poll(); !good) {
      log::error("{}", describe(good.error()));
      server.drain(kLastWords);
      return exit_status(good.error().code);
    }
  }
  log::info("signal {}: draining, up to {:.0f} s; a second one exits at once", signal,
            shutdown_seconds);
  if (meanwhile.on_signal) meanwhile.on_signal(signal);
  const ExitOnSignal second(signals, 1, "the second: exiting without waiting for requests",
                            kSameSignal);
  const bool complete = server.drain(from_seconds(shutdown_seconds));
  log::info("stopped: {}", complete ? "every request was answered" : "some requests were aborted");
  return complete ? 0 : 1;
}

}  // namespace hocket
