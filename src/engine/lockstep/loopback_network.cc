#include "engine/lockstep/loopback_network.h"

namespace hocket {

void SharedError::lose(Error why) {
  {
    MutexLock lock(mutex_);
    if (why_) return;
    why_ = std::move(why);
    lost_.store(1, std::memory_order_release);
  }
  for (Transport* end : ends_) end->wake();
}

std::optional<Error> SharedError::lost() const {
  if (lost_.load(std::memory_order_acquire) == 0) return std::nullopt;
  MutexLock lock(mutex_);
  return why_;
}

LoopbackNetwork::LoopbackNetwork(std::unique_ptr<Transport> end, SharedError& loss,
                                 std::string name)
    : end_(std::move(end)), loss_(loss), name_(std::move(name)) {}

Result<std::optional<RankSet>> LoopbackNetwork::members(Duration /*max_wait*/) {
  if (auto lost = loss_.lost()) return fail(*std::move(lost));
  return RankSet::all(num_ranks());
}

Result<std::optional<RankNetwork::Link>> LoopbackNetwork::join(const RankSet& ranks,
                                                               Duration /*max_wait*/) {
  if (auto lost = loss_.lost()) return fail(*std::move(lost));
  return Link{.transport = end_.get(), .ranks = ranks};
}

void LoopbackNetwork::report_lost(int /*peer*/, const Error& why) {
  loss_.lose(why);
}

}  // namespace hocket
