// `hocket bench serving`: many clients over HTTP, against a server that runs or one in this
// process.
#pragma once

#include "bench/load.h"

namespace hocket {

struct BenchServingOptions {
  LoadOptions load;   // vocab_size is asked of the server
  bool json = false;  // one object
  std::string log;    // file for the requests, as policy/simulation/trace.h reads them
};

// Loads, prints throughput and latencies at p50, p90 and p99, errors by kind, and whether every KV
// page is accounted for once the server is at rest. Returns the exit status: 1 where a request
// failed or a page is missing.
int bench_serving(BenchServingOptions options);

}  // namespace hocket
