// Counts of experts that move while requests are served (engine/balance), as copies. A new counter
// is a member and its row, and the code that counts it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "core/named_counter.h"

namespace hocket {

struct ExpertMoveCounters {
  uint64_t checks_total = 0;      // balance checks: of the experts that rows chose
  uint64_t rebalances_total = 0;  // checks after which experts moved
  uint64_t layers_total = 0;      // layers that got other places
  uint64_t moves_total = 0;       // experts that this rank loaded for them
  uint64_t bytes_total = 0;       // bytes of these
  double load_seconds_total = 0;  // time of one core for them
  uint64_t failures_total = 0;    // rebalances that were given up
  // Steps during which experts were loaded and moved, of a size whose usual time is known; their
  // time, that of the slowest rank; and the time of as many like steps before.
  uint64_t steps_total = 0;
  double step_seconds_total = 0, usual_seconds_total = 0;
};

inline constexpr auto kExpertMoveCounters = std::to_array<NamedCounter<ExpertMoveCounters>>(
    {{.value = &ExpertMoveCounters::checks_total,
      .name = "expert_rebalance_checks_total",
      .help = "Checks whether experts should move",
      .key = "checks",
      .old_name = "expert_looks_total",
      .old_key = "looks",
      .is_shared = true},
     {.value = &ExpertMoveCounters::rebalances_total,
      .name = "expert_rebalances_total",
      .help = "Checks after which experts moved",
      .key = "rebalances",
      .is_shared = true},
     {.value = &ExpertMoveCounters::layers_total,
      .name = "expert_layers_moved_total",
      .help = "Layers whose experts got other places",
      .key = "layers",
      .is_shared = true},
     {.value = &ExpertMoveCounters::moves_total,
      .name = "expert_moves_total",
      .help = "Experts that the ranks of this process loaded to move them",
      .key = "experts"},
     {.value = &ExpertMoveCounters::bytes_total,
      .name = "expert_moved_bytes_total",
      .help = "Bytes of the experts loaded to move them",
      .key = "bytes"},
     {.value = &ExpertMoveCounters::load_seconds_total,
      .name = "expert_move_seconds_total",
      .help = "Seconds of one core spent on loading experts to move them",
      .key = "load_seconds"},
     {.value = &ExpertMoveCounters::failures_total,
      .name = "expert_move_failures_total",
      .help = "Rebalances that were given up",
      .key = "failures"},
     {.value = &ExpertMoveCounters::steps_total,
      .name = "expert_move_steps_total",
      .help = "Steps while experts moved, of a size whose usual time was known",
      .key = "steps",
      .is_shared = true},
     {.value = &ExpertMoveCounters::step_seconds_total,
      .name = "expert_move_step_seconds_total",
      .help = "Time of the steps while experts moved",
      .key = "step_seconds",
      .is_shared = true},
     {.value = &ExpertMoveCounters::usual_seconds_total,
      .name = "expert_move_usual_seconds_total",
      .help = "Time of as many like steps before experts moved",
      .key = "usual_seconds",
      .is_shared = true}});
static_assert(names_each_member(kExpertMoveCounters));

struct ExpertMoveStats : ExpertMoveCounters {
  // Those of the last check: the mean work of a rank / that of the busiest, and the seconds of the
  // next minutes that the changes save and cost.
  double balancedness_before = 0, balancedness_after = 0, gain_seconds = 0, cost_seconds = 0;
  int num_remaining_layers = 0;  // layers that are still to change
  std::string last_error;        // why the last rebalance was given up
};

}  // namespace hocket
