#include "cluster/coordinator_address.h"

namespace hocket {

std::string CoordinatorAddress::name() const {
  return rank_ < 0 ? "a coordinator" : fmt::format("rank {}", rank_);
}

std::string CoordinatorAddress::text() const {
  return address_ ? fmt::format("{} at {}", name(), to_text(*address_)) : name();
}

// A rank 0 that was started again may have another address by the same name.
Result<SocketAddress> CoordinatorAddress::next(bool resolves_anew) {
  if (next_ >= resolved_.size()) {
    if (resolved_.empty() || resolves_anew) {
      HOCKET_TRY(resolved_, resolve(*address_));
    }
    next_ = 0;
  }
  return resolved_[next_++];
}

}  // namespace hocket
