// `hocket bench all2all`: times the exchange between ranks over UCX, over plain TCP sockets in the
// ways of socket_transport.h, between threads of one process, and over MPI if it is installed. All
// carry the same messages.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hocket {

struct BenchAllToAllOptions {
  int num_ranks = 2;
  std::vector<int> bytes = {4'000, 64'000, 500'000, 2'500'000};  // length of a message to a peer
  int rounds = 15;
  bool probe = false;    // times the wait after 12 ms of computing instead of an exchange
  double link_gbit = 0;  // rate of a rank's link, to print the share used; 0: unknown
  int rank = -1;         // this process, if ranks are started by hand; -1: all start here
  std::string addr;      // host:port where rank 0 listens; with `rank`
  std::string mpirun;    // the command with flags to reach the ranks' hosts; with `rank`
  std::string devices;   // UCX_NET_DEVICES; empty: the device of this process's address
  bool json = false;     // one object a line
};

// Rank 0 prints a line for each length and transport: median time of an exchange (each rank sends a
// message to every other and has all of theirs), rate of the bytes that leave a rank, speed
// relative to sockets, and the time of rank 0's core. Rounds of all transports are interleaved.
// Ranks that are started by hand may be on different hosts or in network name spaces; then shared
// memory, threads and, without `mpirun`, MPI are left out. Errors: bad_value, io, lost_rank.
// Returns the exit status.
Result<int> bench_all2all(const BenchAllToAllOptions& options);

}  // namespace hocket
