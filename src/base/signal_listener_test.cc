#include "base/signal_listener.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <mutex>

#include "base/log.h"

namespace hocket {
namespace {

using namespace std::chrono_literals;

// Returns the exit status of a process that runs `body`: 200 if body returned, -1 if a signal ended
// the process.
int status_after(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang is a failure, not a pause
    log::set_level(log::Level::off);
    body();
    _exit(200);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

[[noreturn]] void hang() {
  std::mutex held;
  held.lock();
  Thread({.name = "hangs"}, [&] { held.lock(); }).join();
  std::abort();
}

void signal_self(int number) {
  kill(getpid(), number);
}

TEST(SignalListener, ASignalBeforeTheHandOverEndsTheProcessWhateverItDoes) {
  EXPECT_EQ(status_after([] {
              const SignalListener signals;
              signal_self(SIGTERM);
              hang();
            }),
            0);
}

TEST(SignalListener, TheFirstOneIsHandedOver) {
  EXPECT_EQ(status_after([] {
              SignalListener signals;
              signals.deliver_to_wait({.end = 1h});
              signal_self(SIGHUP);
              if (signals.wait(10s) != SIGHUP) _exit(3);
              if (signals.wait(1ms) != 0) _exit(4);
              signal_self(SIGINT);
              if (signals.wait(10s) != SIGINT) _exit(5);
            }),
            200);
}

TEST(SignalListener, ASecondOneEndsTheProcessAtOnce) {
  EXPECT_EQ(status_after([] {
              SignalListener signals;
              signals.deliver_to_wait({.end = 1h});
              signal_self(SIGTERM);
              if (signals.wait(10s) != SIGTERM) _exit(3);
              signal_self(SIGTERM);  // ignored: it may be the first signal, coming by another way
              const Thread again({.name = "again"}, [] {
                usleep(1'100'000);
                signal_self(SIGTERM);
              });
              hang();
            }),
            1);
}

TEST(SignalListener, AfterTheFirstOneTheProcessEndsInTime) {
  EXPECT_EQ(status_after([] {
              SignalListener signals;
              signals.deliver_to_wait({.end = 50ms});
              signal_self(SIGTERM);
              hang();
            }),
            1);
}

TEST(SignalListener, AnEndThatWasBegunComesWithItsStatus) {
  EXPECT_EQ(status_after([] {
              SignalListener signals;
              signals.deliver_to_wait({.end = 1h});
              signals.end_within(50ms, 5);
              hang();
            }),
            5);
}

TEST(SignalListener, AMainThreadThatStandsStillIsFound) {
  EXPECT_EQ(status_after([] {
              SignalListener signals;
              signals.deliver_to_wait({.end = 1h, .silence = 100ms});
              signals.wait(1ms);
              hang();
            }),
            6);
}

// The log has no room for the last line of the process.
TEST(SignalListener, APausedLogHindersNoEnd) {
  EXPECT_EQ(status_after([] {
              log::set_level(log::Level::info);
              int ends[2];
              if (pipe(ends) != 0) _exit(3);
              dup2(ends[1], STDERR_FILENO);
              SignalListener signals;
              const log::Writer writer;
              for (int i = 0; i < 30'000; ++i) log::info("Decode batch, {:40}", i);
              signals.deliver_to_wait({.end = 50ms});
              signal_self(SIGTERM);
              hang();
            }),
            1);
}

TEST(SignalListener, AfterwardsSignalsEndTheProcessAsTheyDoByDefault) {
  EXPECT_EQ(status_after([] {
              {
                const SignalListener signals;
              }
              signal_self(SIGTERM);
            }),
            -1);
}

}  // namespace
}  // namespace hocket
