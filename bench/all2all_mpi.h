// Times the exchange over MPI, if it is installed, with a small program that is compiled by mpicc
// at the first call. It uses Open MPI over TCP with eager messages, as hocket sends them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace hocket {

struct MpiExchange {
  std::string mpirun;     // the command, with flags for hosts and devices
  std::vector<int> cpus;  // the core of each rank
  int num_bytes = 0;      // length of a message to each peer
  int num_exchanges = 0;  // in each round
  int rounds = 0;
};
// Returns the mean time of an exchange in each round, in microseconds.
// Errors: io ("MPI is not installed", or the reason why it failed).
Result<std::vector<double>> mpi_exchange_us(const MpiExchange& what);

}  // namespace hocket
