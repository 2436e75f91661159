// `hocket bench serving`: many clients over HTTP, asking a running server or one in this process.
#pragma once

#include "bench/load.h"

namespace hocket {

struct BenchServingOptions {
  LoadOptions load;   // the server tells vocab_size
  bool json = false;  // prints one object
  std::string log;    // file for the requests, as policy/simulation/trace.h reads them; empty: none
};

// Runs the load, then prints throughput, latencies at p50, p90 and p99, errors by kind, and the
// state of the KV pages. Returns the exit status: 1 if a request failed, none succeeded, or a page
// is not accounted for when the server is at rest.
int bench_serving(BenchServingOptions options);

}  // namespace hocket
