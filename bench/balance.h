// Measures how evenly each balancer spreads experts over ranks, for loads after a power law.
#pragma once

namespace hocket {

struct BenchBalanceOptions {
  int num_experts = 256;
  int num_layers = 8;  // loads with the same law in other sequences
  bool json = false;
};
int bench_balance(const BenchBalanceOptions& options);

}  // namespace hocket
