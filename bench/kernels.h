// `hocket bench kernels`: linear layers and grouped experts against ref, and as a fraction of what
// the machine can do.
#pragma once

namespace hocket {

struct BenchKernelsOptions {
  bool json = false;   // one object a line
  bool quick = false;  // fewer runs
  int threads = 0;     // 0: as many as the machine gives
};

// One line a case:   linear rows=1 k=2048 n=2048 bf16 | 41 us | 7.1x ref | 0.83 of read bandwidth
// Weights of fewer bits tell how much faster they are than bf16 too: | 1.9x bf16.
// Every timed result is compared with ref's bits.   Returns the exit status: 1 where bits differ, 4
// where memory lacks.
int bench_kernels(const BenchKernelsOptions& options);

}  // namespace hocket
