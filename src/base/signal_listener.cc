#include "base/signal_listener.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "base/log.h"
#include "base/result.h"

namespace hocket {
namespace {

constexpr timespec kTick{.tv_sec = 0, .tv_nsec = 100'000'000};
// A second signal within this time counts as the first: a supervisor that signals all processes of
// a job reaches a rank twice, directly and through the rank that started it.
constexpr Duration kSameSignal = std::chrono::seconds(1);
constexpr Duration kLastLine = std::chrono::milliseconds(200);

std::atomic<int> exit_status_of_alarm = 1;

template <class... Args>
[[noreturn]] void end_now(int status, fmt::format_string<Args...> why, Args&&... args) {
  // If the log hangs, the alarm ends the process after one second.
  exit_status_of_alarm = status;
  std::signal(SIGALRM, [](int) { std::_Exit(exit_status_of_alarm); });
  alarm(1);
  log::warning(why, std::forward<Args>(args)...);
  log::flush(kLastLine);
  std::_Exit(status);
}

}  // namespace

SignalListener::SignalListener() {
  sigemptyset(&signals_);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals_, number);
  pthread_sigmask(SIG_BLOCK, &signals_, &blocked_before_);
  thread_ = Thread({.name = "signals"}, [this] { run(); });
}

SignalListener::~SignalListener() {
  stopping_ = true;
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &blocked_before_, nullptr);
}

void SignalListener::deliver_to_wait(const Limits& limits) {
  limits_ = limits;
  delivers_ = true;
}

int SignalListener::wait(Duration max_wait) {
  last_wait_ns_ = real_now_ns();
  return arrived_.try_acquire_for(max_wait) ? received_.exchange(0) : 0;
}

void SignalListener::end_within(Duration limit, int status) {
  const int64_t now = real_now_ns(), end = now + limit.count();
  int64_t none = 0;
  ending_since_ns_.compare_exchange_strong(none, now);
  status_ = status;
  int64_t before = end_ns_;
  while ((before == 0 || end < before) && !end_ns_.compare_exchange_weak(before, end)) {
  }
}

void SignalListener::run() {
  while (!stopping_) {
    if (const int number = sigtimedwait(&signals_, nullptr, &kTick); number > 0) on_signal(number);
    look_at_clock();
  }
}

void SignalListener::on_signal(int number) {
  if (number == SIGHUP) {
    int none = 0;
    if (delivers_ && received_.compare_exchange_strong(none, number)) arrived_.release();
    return;
  }
  if (!delivers_) end_now(0, "signal {}: ending before anything was served", number);
  if (const int64_t since = ending_since_ns_; since == 0) {
    end_within(limits_.end, 1);
    received_ = number;
    arrived_.release();
  } else if (real_now_ns() - since >= kSameSignal.count()) {
    end_now(1, "signal {}: the second: exiting without waiting for requests", number);
  }
}

void SignalListener::look_at_clock() const {
  const int64_t now = real_now_ns();
  if (const int64_t end = end_ns_; end != 0 && now >= end)
    end_now(status_, "ended while threads were still at work: {:.1f} s are over",
            to_seconds(Duration(end - ending_since_ns_)));
  const int64_t silent = now - last_wait_ns_;
  if (last_wait_ns_ != 0 && end_ns_ == 0 && limits_.silence > Duration::zero() &&
      silent > limits_.silence.count())
    end_now(exit_status(ErrorCode::watchdog), "the main thread has not moved for {:.1f} s",
            to_seconds(Duration(silent)));
}

}  // namespace hocket
