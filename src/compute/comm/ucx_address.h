// What a rank says of itself before it can be sent anything: who and where it is, and the address
// of its UCX worker. Peers of the same host use it to see whether its process still lives.
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
  uint64_t host = 0;  // equal where memory and processes are shared
  int pid = 0;
  uint64_t started = 0;               // of the process, in ticks since the machine started
  std::span<const std::byte> worker;  // UCX's own
};

// Of this process, on this host; the caller fills in the rest.
RankAddress address_here();
std::vector<std::byte> encode(const RankAddress& address);
// A view into `bytes`. Errors: bad_value, as half a sentence ("is not an address").
Result<RankAddress> decode_address(std::span<const std::byte> bytes);

// A descriptor that becomes readable when that process ends; -1 where there is no such thing.
// Errors: lost_rank (it has ended already).
Result<int> watch_process(const RankAddress& address);

}  // namespace hocket
