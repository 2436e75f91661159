// Keeps the seat on a thread "etcd" of its own, because calls to etcd block.
// Thread: any for its functions.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/mutex.h"
#include "base/thread.h"
#include "cluster/coordinator_seat.h"
#include "cluster/etcd_client.h"

namespace hocket {

class CoordinatorSeatThread {
 public:
  // Calls `changed` on its thread after each change of state().
  CoordinatorSeatThread(EtcdClient::Options etcd, CoordinatorSeat::Options options,
                        std::function<void()> changed);
  // Releases the seat with one call to etcd, after any call that is under way. Each of the two
  // takes at most the limit of a call.
  ~CoordinatorSeatThread();

  CoordinatorSeat::State state() const;
  // See CoordinatorSeat.
  void want(std::optional<HostPort> address);
  void want_epoch(int64_t term, uint32_t epoch, std::string ranks);
  void end_term(int64_t term);

 private:
  struct SeatTargets {
    std::optional<HostPort> address;
    int64_t epoch_term = 0;
    uint32_t epoch = 0;
    std::string ranks;
    int64_t gone_term = 0;

    bool operator==(const SeatTargets&) const = default;
  };
  void run();
  void wait() const;
  void wake() const;
  template <class Change>
  void change_targets(Change&& change);

  const std::function<void()> changed_;
  const RealClock clock_;
  EtcdClient etcd_;
  CoordinatorSeat seat_;
  const Fd wake_;
  mutable Mutex mutex_;
  SeatTargets targets_ HOCKET_GUARDED_BY(mutex_);
  CoordinatorSeat::State state_ HOCKET_GUARDED_BY(mutex_);
  bool stopping_ HOCKET_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

}  // namespace hocket
