// `hocket bench all2all`: the exchange between ranks over UCX, compared with plain TCP sockets,
// threads of one process, and MPI where it is installed; the same messages over all.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hocket {

struct BenchAllToAllOptions {
  int num_ranks = 2;
  std::vector<int> bytes = {4'000, 64'000, 500'000, 2'500'000};  // of a message to each peer
  int rounds = 15;
  bool probe = false;    // the wait after 12 ms of computing instead of the time of an exchange
  double link_gbit = 0;  // rate of a rank's link, for the share of it; 0: unknown
  int rank = -1;         // of this process, where each is started by hand; -1: all start here
  std::string addr;      // host:port where rank 0 listens; with `rank`
  std::string mpirun;    // and its flags that say how to reach `addr`'s hosts; with `rank`
  std::string devices;   // UCX_NET_DEVICES; empty: the one of this process's address
  bool json = false;     // one object a line
};

// Rank 0 prints a line for each length and transport: median time of an exchange (each rank sends a
// message to every other and has all of theirs), bytes that leave a rank in that time, ratio to
// sockets. Rounds of all transports are interleaved. Started by hand, the ranks may be on hosts or
// in network name spaces of their own; then shared memory, threads and, without
// `mpirun`, MPI are left out.
// Errors: bad_value, io, lost_rank. Returns the exit status.
Result<int> bench_all2all(const BenchAllToAllOptions& options);

}  // namespace hocket
