#include "engine/ranks/loopback_network.h"

namespace hocket {

void SharedFate::lose(Error why) {
  {
    MutexLock lock(mutex_);
    if (why_) return;
    why_ = std::move(why);
    lost_.store(1, std::memory_order_release);
  }
  for (Transport* end : ends_) end->wake();
}

std::optional<Error> SharedFate::lost() const {
  if (lost_.load(std::memory_order_acquire) == 0) return std::nullopt;
  MutexLock lock(mutex_);
  return why_;
}

LoopbackNetwork::LoopbackNetwork(std::unique_ptr<Transport> end, SharedFate& fate, std::string name)
    : end_(std::move(end)), fate_(fate), name_(std::move(name)) {}

Result<std::optional<RankNetwork::Link>> LoopbackNetwork::join(Duration /*most*/) {
  if (auto lost = fate_.lost()) return fail(*std::move(lost));
  return Link{.transport = end_.get()};
}

void LoopbackNetwork::lose(int /*peer*/, const Error& why) {
  fate_.lose(why);
}

}  // namespace hocket
