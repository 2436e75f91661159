#include "cluster/coordinator_seat_thread.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"

namespace hocket {

CoordinatorSeatThread::CoordinatorSeatThread(EtcdClient::Options etcd,
                                             CoordinatorSeat::Options options,
                                             std::function<void()> changed)
    : changed_(std::move(changed)),
      etcd_(std::move(etcd)),
      seat_(etcd_, clock_, std::move(options)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  HOCKET_CHECK(static_cast<bool>(wake_));
  const BlockedSignals blocked;
  thread_ = Thread({.name = "etcd"}, [this] { run(); });
}

CoordinatorSeatThread::~CoordinatorSeatThread() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

void CoordinatorSeatThread::wake() const {
  const uint64_t one = 1;
  // If the counter is full, the write fails, but the thread is being woken already.
  (void)!write(wake_.get(), &one, sizeof one);
}

CoordinatorSeat::State CoordinatorSeatThread::state() const {
  MutexLock lock(mutex_);
  return state_;
}

template <class Change>
void CoordinatorSeatThread::change_targets(Change&& change) {
  {
    MutexLock lock(mutex_);
    SeatTargets now = targets_;
    change(now);
    if (now == targets_) return;
    targets_ = std::move(now);
  }
  wake();
}

void CoordinatorSeatThread::want(std::optional<HostPort> address) {
  change_targets([&](SeatTargets& targets) { targets.address = std::move(address); });
}

void CoordinatorSeatThread::want_epoch(int64_t term, uint32_t epoch, std::string ranks) {
  change_targets([&](SeatTargets& targets) {
    targets.epoch_term = term;
    targets.epoch = epoch;
    targets.ranks = std::move(ranks);
  });
}

void CoordinatorSeatThread::end_term(int64_t term) {
  change_targets([&](SeatTargets& targets) { targets.gone_term = term; });
}

void CoordinatorSeatThread::run() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (stopping_) break;
      seat_.want(targets_.address);
      seat_.want_epoch(targets_.epoch_term, targets_.epoch, targets_.ranks);
      seat_.end_term(targets_.gone_term);
    }
    seat_.tick();
    CoordinatorSeat::State state = seat_.state();
    bool is_new = false;
    {
      MutexLock lock(mutex_);
      is_new = !(state == state_);
      state_ = std::move(state);
    }
    if (is_new) changed_();
    wait();
  }
  seat_.resign();
}

void CoordinatorSeatThread::wait() const {
  const auto remaining =
      std::chrono::ceil<std::chrono::milliseconds>(seat_.next_deadline() - clock_.now());
  // While the seat backs off it reads no watch, so bytes that a watch has would end each wait at
  // once.
  pollfd ready[2] = {
      {.fd = wake_.get(), .events = POLLIN, .revents = 0},
      {.fd = seat_.backs_off() ? -1 : etcd_.watch_fd(), .events = POLLIN, .revents = 0}};
  if (::poll(ready, 2, static_cast<int>(std::clamp<int64_t>(remaining.count(), 0, 60'000))) <= 0)
    return;
  uint64_t count = 0;
  (void)!read(wake_.get(), &count, sizeof count);
}

}  // namespace hocket
