// The exchange over MPI, where it is installed: a small program, compiled with mpicc when it is
// asked for. Open MPI over TCP with eager messages, as hocket sends them.
#pragma once

#include "base/result.h"

namespace hocket {

// Mean time of an exchange between processes of this machine, in microseconds.
// Errors: io ("MPI is not installed", or what went wrong).
Result<double> mpi_exchange_us(int num_ranks, int num_bytes, int num_exchanges);

}  // namespace hocket
