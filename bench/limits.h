// What this machine can do, measured: the limits that benches are compared with. Best of several
// runs, threads pinned by the pool.
#pragma once

#include "base/worker_pool.h"

namespace hocket {

// Bytes a second that all workers together read from memory, one stream each, prefetched, from 2
// MiB pages.
double measured_read_bandwidth(WorkerPool& workers);

// fp32 FMA operations a second (two a multiply-add) of all workers together, in the widest
// registers this machine has.
double measured_fma_peak(WorkerPool& workers);

// int8 operations a second (two a multiply-add) of all workers together: of tile units, VNNI, or
// words in the registers of AVX2, whichever the integer products use.
double measured_integer_peak(WorkerPool& workers);

// bf16 operations a second of all workers' tile units; 0 where there are none.
double measured_amx_peak(WorkerPool& workers);

}  // namespace hocket
