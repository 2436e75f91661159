// Measures the limits of this machine, with which benches compare their results. Each function
// returns the best of several runs; the pool pins its threads.
#pragma once

#include <string_view>

#include "base/machine.h"
#include "base/worker_pool.h"

namespace hocket {

// Returns the bytes a second that all workers together read from memory: one prefetched stream
// each, from 2 MiB pages. 0: there is not enough memory.
double measured_read_bandwidth(WorkerPool& workers);

// Returns the int8 operations a second (two a multiply-add) of all workers together, on the units
// that integer products of a level use: tiles, VNNI, or 16-bit words in AVX2 registers. The machine
// must have the level; `ref`, which has no units of its own, is compared with avx2.
double measured_integer_peak(Isa isa, WorkerPool& workers);

// Returns the name of the instruction that multiplies bf16 on a level where there are many rows:
// "AMX", "bf16" (VDPBF16PS) or "FMA".
std::string_view bf16_peak_name(Isa isa);
// Returns the operations a second (two a multiply-add) of that instruction, in the widest registers
// of the level, of all workers together. The machine must have the level, as above.
double measured_bf16_peak(Isa isa, WorkerPool& workers);

}  // namespace hocket
