// Measures how evenly each balancer spreads experts over ranks, for loads after a power law.
#pragma once

#include <cstdint>
#include <vector>

namespace hocket {

struct BenchBalanceOptions {
  int num_experts = 256;
  int num_layers = 8;  // loads with the same law in other sequences
  bool json = false;
  bool by_source = false;  // bench_balance_by_source() instead
};
int bench_balance(const BenchBalanceOptions& options);

// Returns the loads of experts: expert number i of a random sequence has i^-exponent.
std::vector<uint64_t> power_law(int num_experts, double exponent, int seed);

}  // namespace hocket
