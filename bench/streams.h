// `hocket bench streams`: measures the memory of a stream that waits, and the time to the first
// byte of streams that run, with and without a thousand waiting ones.
#pragma once

#include <string>

#include "base/result.h"

namespace hocket {

struct BenchStreamsOptions {
  std::string model_path;  // empty: the bundled model
  int num_idle = 1000;     // open streams whose requests wait behind those of the busy ones
  int num_busy = 64;       // streams whose client asks again as soon as it has its answer
  double seconds = 10;     // length of each of the two parts
  int output_len = 32;     // tokens of a busy answer
  bool json = false;
};

// Starts `serve` as a child of this process, on a free port.   Returns the exit status: 1 if an
// answer failed or an idle stream was lost.   Errors: io.
Result<int> bench_streams(const BenchStreamsOptions& options);

}  // namespace hocket
