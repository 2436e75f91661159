// The coordinator that a follower looks for: its rank and address, as far as they are known, and
// the socket addresses of that name, which are tried in turn. Owner: Follower. Thread: the control
// plane's.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/socket.h"

namespace hocket {

class CoordinatorAddress {
 public:
  // No coordinator is known.
  CoordinatorAddress() = default;
  CoordinatorAddress(int rank, HostPort address) : rank_(rank), address_(std::move(address)) {}

  bool is_known() const { return address_.has_value(); }
  int rank() const { return rank_; }  // -1: none is known
  bool is(int rank, const HostPort& address) const { return rank == rank_ && address_ == address; }
  // Return "rank 0" and "rank 0 at h0:5000"; "a coordinator" if none is known.
  std::string name() const;
  std::string text() const;
  // Returns "h0:5000". Precondition: is_known().
  std::string address_text() const { return to_text(*address_); }
  // Returns the socket address to try next. Once all were tried it begins again; resolves_anew:
  // with the address that the name has then, as it does at first. That may block. Errors: those of
  // resolve(). Precondition: is_known().
  Result<SocketAddress> next(bool resolves_anew);

 private:
  int rank_ = -1;
  std::optional<HostPort> address_;
  std::vector<SocketAddress> resolved_;
  size_t next_ = 0;
};

}  // namespace hocket
