// Counts of experts that move while requests are served (engine/balance), as copies.
#pragma once

#include <cstdint>
#include <string>

namespace hocket {

struct ExpertMoveStats {
  uint64_t checks_total = 0;      // balance checks: of the experts that rows chose
  uint64_t rebalances_total = 0;  // checks after which experts moved
  uint64_t layers_total = 0;      // layers that got other places
  uint64_t moves_total = 0;       // experts that this rank loaded for them
  uint64_t bytes_total = 0;       // bytes of these
  double load_seconds_total = 0;  // time of one core for them
  uint64_t failures_total = 0;    // rebalances that were given up
  // Those of the last check: the mean work of a rank / that of the busiest, and the seconds of the
  // next minutes that the changes save and cost.
  double balancedness_before = 0, balancedness_after = 0, gain_seconds = 0, cost_seconds = 0;
  int num_remaining_layers = 0;  // layers that are still to change
  std::string last_error;        // why the last rebalance was given up
};

}  // namespace hocket
