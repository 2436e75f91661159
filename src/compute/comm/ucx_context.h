// The part of UCX that one end has: its context and the worker that moves all messages, and all
// that wakes a rank which sleeps until something moves: the worker's events, wake(), and the ends
// of processes. Only ucx_*.cc include it; see ucx_transport.h. Owner: UcxEnd. Thread: one at a
// time; wake(): any.
#pragma once

#ifdef HOCKET_HAS_UCX

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "compute/comm/ucx_library.h"
#include "compute/comm/ucx_settings.h"

namespace hocket {

class UcxContext {
 public:
  UcxContext(const UcxLibrary& ucx, const UcxOptions& options)
      : ucx_(ucx), settings_(ucx_settings(options)) {}
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;
  ~UcxContext();
  // Starts UCX. Errors: bad_value (a way or device does not exist), io.
  Result<void> open(int num_ranks);
  // Ends UCX's worker, and with it all requests and endpoints.
  void close();

  bool is_open() const { return worker_ != nullptr; }
  ucp_worker_h handle() const { return worker_; }
  const UcxLibrary& ucx() const { return ucx_; }
  const UcxSettings& settings() const { return settings_; }
  // Returns the bytes by which other ranks reach this one. Errors: bad_value.
  Result<std::vector<std::byte>> address() const;

  // Moves what can be moved. Returns false if nothing could. Precondition: is_open().
  bool turn() { return ucx_.ucp_worker_progress(worker_) != 0; }
  // Says that something has moved since the last take_events().
  void note_event() { has_events_ = true; }
  bool has_events() const { return has_events_; }
  bool take_events() { return std::exchange(has_events_, false); }

  // Wakes sleeps when the descriptor is readable; `id` is at least 0. Returns false if it cannot.
  bool watch(int fd, int id);
  void unwatch(int fd);
  // Returns false if something has arrived, so that a sleep would miss it.
  bool arm() { return ucx_.ucp_worker_arm(worker_) == UCS_OK; }
  // Sleeps until something wakes it, at most `max_wait`. Returns the ids of some descriptors that
  // are readable; the next sleep returns the others at once.
  static constexpr int kMaxReadable = 8;
  struct Readable {
    std::array<int, kMaxReadable> ids{};
    int num = 0;
  };
  Readable sleep(Duration max_wait);
  void wake();
  // Drives transfers until done() returns true, for at most `max_wait`. Returns the last done().
  // woken(readable) is called after each sleep.
  template <class Done, class Woken>
  bool until(Duration max_wait, Done done, Woken woken);

  static constexpr int kMaxTurns = 1000;  // turns between two looks

 private:
  std::unexpected<Error> refused(ucs_status_t status) const;

  const UcxLibrary& ucx_;
  const UcxSettings settings_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int worker_fd_ = -1, wake_fd_ = -1, epoll_fd_ = -1;
  bool has_events_ = false;
};

template <class Done, class Woken>
bool UcxContext::until(Duration max_wait, Done done, Woken woken) {
  constexpr Duration kMaxSleep = std::chrono::milliseconds(100);  // a sleep
  const TimePoint deadline = std::chrono::steady_clock::now() + max_wait;
  for (;;) {
    // A bounded number, because strangers may send messages faster than they are thrown away.
    for (int i = 0; i < kMaxTurns && turn(); ++i) {
    }
    if (done()) return true;
    const Duration remaining = deadline - std::chrono::steady_clock::now();
    if (remaining.count() <= 0) return false;
    if (arm()) woken(sleep(std::min(remaining, kMaxSleep)));
  }
}

}  // namespace hocket

#endif
