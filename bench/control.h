// Measures what TLS costs where ranks talk to each other: small messages of the control plane there
// and back, large ones, and pages for other services, each with and without it in turn, over
// loopback TCP.
#pragma once

#include "base/result.h"

namespace hocket {

struct BenchControlOptions {
  int rounds = 9;
  bool json = false;
};
Result<int> bench_control(const BenchControlOptions& options);

}  // namespace hocket
