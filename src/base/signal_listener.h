// Handles SIGTERM, SIGINT and SIGHUP on the thread `signals`, so that the process ends in bounded
// time whatever its other threads do.
//
//   SignalListener() .......... SIGTERM or SIGINT ends the process at once, status 0
//   deliver_to_wait(limits) ... wait() returns the first SIGTERM or SIGINT, and the process ends
//                               within limits.end of it, status 1; another one, a second later or
//                               more, ends it at once
//
// SIGHUP never ends the process: it does nothing before deliver_to_wait(); after it, wait() returns
// it.
//
// The thread `signals` never waits for the log, a disk, another thread or a lock that is held long.
// Thread: any, unless a function says otherwise.
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
    Duration silence{};  // longest time between two wait()s, or exit status 6; zero: no limit
  };

  // Blocks the signals in this thread and in all threads that it makes. Make it before any other
  // thread; only one may exist at a time.
  SignalListener();
  // Ends the thread `signals` and restores the signal mask of the calling thread.
  ~SignalListener();
  SignalListener(const SignalListener&) = delete;
  SignalListener& operator=(const SignalListener&) = delete;

  void deliver_to_wait(const Limits& limits);
  // Returns the signal that was received, or 0 after `max_wait`.   Thread: one.
  int wait(Duration max_wait);
  // Ends the process with `status` if it has not ended by itself within `limit`. If an earlier end
  // was set already, that time stays, with this status.
  void end_within(Duration limit, int status);

 private:
  void run();
  void on_signal(int number);
  void look_at_clock() const;

  sigset_t signals_{}, blocked_before_{};
  std::atomic<bool> delivers_ = false, stopping_ = false;
  Limits limits_{};
  std::atomic<int> received_ = 0;
  std::counting_semaphore<> arrived_{0};
  // Times of the steady clock; 0: not yet.
  std::atomic<int64_t> last_wait_ns_ = 0, ending_since_ns_ = 0, end_ns_ = 0;
  std::atomic<int> status_ = 1;
  Thread thread_;
};

}  // namespace hocket
