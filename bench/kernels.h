// `hocket bench kernels`: compares the speed of linear layers and grouped experts with ref and with
// the limits of this machine.
#pragma once

namespace hocket {

struct BenchKernelsOptions {
  bool json = false;   // one object a line
  bool quick = false;  // fewer runs
  int threads = 0;     // 0: one a core
};

// Prints one line a case:
//   linear rows=1 k=2048 n=2048 bf16 | 41 us (40-44) | 7.1x ref | 0.83 of read bandwidth
// Lines of weights with fewer bits also have their speed relative to bf16: | 1.9x bf16.
// Part of each case's result is compared with ref's bits. Returns the exit status: 1 if bits
// differ, 4 if there is not enough memory.
int bench_kernels(const BenchKernelsOptions& options);

}  // namespace hocket
