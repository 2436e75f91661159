#include "apps/serve_until_signal.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "base/black_box.h"
#include "base/log.h"

namespace hocket {
namespace {

constexpr Duration kPoll = std::chrono::milliseconds(250);
constexpr Duration kLastWords = std::chrono::seconds(2);  // requests get the error in this time

void reload(Server& server) {
  if (const Result<void> done = server.reload(); !done)
    log::error("reload: {}; the keys and certificates read before stay in use",
               describe(done.error()));
  else
    log::info("reload: keys and certificates are read again");
}

// Returns true if the terminal that the server was started from has been closed.
bool hung_up(bool had_terminal) {
  return had_terminal && isatty(STDIN_FILENO) == 0;
}

}  // namespace

int serve_until_signal(Server& server, SignalListener& signals, double shutdown_seconds,
                       const ServeHooks& hooks) {
  int signal = 0;
  const bool had_terminal = isatty(STDIN_FILENO) != 0;
  while ((signal = signals.wait(kPoll)) == 0 || (signal == SIGHUP && !hung_up(had_terminal))) {
    if (signal == SIGHUP) {
      reload(server);
      if (hooks.on_signal) hooks.on_signal(signal);
    }
    if (const Result<void> alive = server.watchdog(); !alive) {
      const int status = exit_status(alive.error().code);
      signals.end_within(kEndMargin, status);  // the disk of the black box may hang as well
      log::error("{}", describe(alive.error()));
      if (black_box::write(alive.error().message))
        log::error("what came before is in {}: hocket crash reads it", black_box::path());
      log::flush();
      std::_Exit(status);
    }
    if (!hooks.poll) continue;
    if (const Result<void> good = hooks.poll(); !good) {
      const int status = exit_status(good.error().code);
      signals.end_within(kLastWords + hooks.others + kEndMargin, status);
      log::error("{}", describe(good.error()));
      server.drain(kLastWords, good.error().message);
      return status;
    }
  }
  log::info("signal {}: draining, up to {:.0f} s; a second one exits at once", signal,
            shutdown_seconds);
  if (hooks.on_signal) hooks.on_signal(signal);
  const bool complete = server.drain(from_seconds(shutdown_seconds));
  log::info("stopped: {}", complete ? "every request was answered" : "some answers were cut off");
  const int status = complete ? 0 : 1;
  signals.end_within(hooks.others + kEndMargin, status);
  return status;
}

}  // namespace hocket
