// The address that a rank publishes before messages can be sent to it: its rank, host and process,
// and the address of its UCX worker. Peers on the same host also use it to see whether its process
// lives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace hocket {

struct RankAddress {
  int rank = 0;
  uint32_t epoch = 0;
  uint64_t host = 0;  // equal for ranks that share memory and processes
  int pid = 0;
  uint64_t started = 0;               // start of the process, in ticks since the machine started
  std::span<const std::byte> worker;  // UCX's own address
};

// Returns host and process; the caller fills in the rest.
RankAddress address_here();
std::vector<std::byte> encode(const RankAddress& address);
// Returns an address whose worker points into `bytes`.
// Errors: bad_value, as half a sentence ("cannot be read").
Result<RankAddress> decode_address(std::span<const std::byte> bytes);

// Returns a descriptor that becomes readable when that process ends; -1 where this is not
// supported. Errors: lost_rank (it has ended already).
Result<int> watch_process(const RankAddress& address);

}  // namespace hocket
