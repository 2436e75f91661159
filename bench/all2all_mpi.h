// The exchange over MPI, where it is installed: a small program, compiled with mpicc when it is
// asked for. Open MPI over TCP with eager messages, as hocket sends them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hocket {

struct MpiExchange {
  std::string mpirun;     // the command, with flags that say on which hosts and devices
  std::vector<int> cpus;  // of each rank
  int num_bytes = 0;      // of a message to each peer
  int num_exchanges = 0;  // of a round
  int rounds = 0;
};
// Mean time of an exchange in each round, in microseconds.
// Errors: io ("MPI is not installed", or what went wrong).
Result<std::vector<double>> mpi_exchange_us(const MpiExchange& what);

}  // namespace hocket
