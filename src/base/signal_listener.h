// SIGTERM, SIGINT and SIGHUP, handled by the thread `signals`, so that the process ends in bounded
// time whatever its other threads do.
//
//   SignalListener() ...... a signal but SIGHUP ends the process at once, status 0
//   hand_over(limits) ..... the first goes to wait(), and the process ends within limits.end of it,
//                           status 1; another one, a second later or more, ends it at once
//
// The thread waits for no lock that is held for long, for no log, disk or thread.
#pragma once

#include <signal.h>

#include <atomic>
#include <semaphore>

#include "base/clock.h"
#include "base/thread.h"

namespace hocket {

class SignalListener {
 public:
  struct Limits {
    Duration end;        // from the first signal to the end of the process
    Duration silence{};  // allowed between two wait()s, else exit with status 6; zero: no limit
  };

  // Blocks the signals in this thread and all that it makes. Make it before any other thread; one
  // at a time.
  SignalListener();
  // From now on the signals do what they do by default.
  ~SignalListener();
  SignalListener(const SignalListener&) = delete;
  SignalListener& operator=(const SignalListener&) = delete;

  void hand_over(const Limits& limits);
  // The signal that came, or 0 after `most`.   Thread: one.
  int wait(Duration most);
  // Ends the process with `status` if it has not ended by itself within `most`. An earlier end that
  // was set before stays.
  void end_within(Duration most, int status);

 private:
  void run();
  void on_signal(int number);
  void look_at_clock() const;

  sigset_t signals_{}, blocked_before_{};
  std::atomic<bool> handed_over_ = false, stopping_ = false;
  Limits limits_{};
  std::atomic<int> came_ = 0;
  std::counting_semaphore<> arrived_{0};
  // In time of the steady clock; 0 means not yet.
  std::atomic<int64_t> last_wait_ns_ = 0, ending_since_ns_ = 0, end_ns_ = 0;
  std::atomic<int> status_ = 1;
  Thread thread_;
};

}  // namespace hocket
