// `hocket bench streams`: how a server bears many streams: what one that waits costs, and how soon
// the first byte comes to those that run, with and without the others.
#pragma once

#include <string>

#include "base/result.h"

namespace hocket {

struct BenchStreamsOptions {
  std::string model_path;  // empty: the bundled model
  int num_idle = 1000;     // open, their requests wait behind those of the busy ones
  int num_busy = 64;       // each asks again as soon as it has its answer
  double seconds = 10;     // of each part
  int output_len = 32;     // tokens of a busy answer
  bool json = false;
};

// Starts `serve` as a child of this process, on a free port.   Returns the exit status: 1 where a
// busy answer failed, or an idle stream was lost.   Errors: io.
Result<int> bench_streams(const BenchStreamsOptions& options);

}  // namespace hocket
