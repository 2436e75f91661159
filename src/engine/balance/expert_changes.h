// Says which layers' experts should move, from how many rows chose each. A pure function: ranks
// that have equal counts and placements find the same changes, so none has to send them.
//
// The work of an expert in a step is the work of its rows, plus that of reading its weights if it
// has any row:
//
//   work = m + kOpenedRows * m / (m + 1),   m its rows in a step; m / (m + 1) for "has any"
//
// A step waits for the rank that has most of it, in each layer.   Thread: any.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "compute/moe/placement.h"
#include "engine/plan/expert_places.h"

namespace hocket {

// Reading the weights of an expert takes as long as computing this number of its rows.
inline constexpr double kOpenedRows = 16;
// A layer changes if its busiest rank loses this share of its work.
inline constexpr double kMinRelief = 0.02;

struct LayerChange {
  int layer = 0;
  Placement to;
  // The work of the rank that has most, in rows of a step.
  double before = 0, after = 0;
  int num_moves = 0;  // experts that ranks have to load
  int max_moves = 0;  // moves of the rank that has most
};

struct ExpertChanges {
  std::vector<LayerChange> layers;  // those that change; the largest gain for a move first
  double work = 0;                  // that of the busiest ranks, summed over all layers
  // The mean work of a rank / that of the busiest, as a mean of all layers; 1 is even.
  double balancedness_before = 1, balancedness_after = 1;
  int num_moves = 0;

  // Returns the share of `work` that the changes save.
  double saved_share() const;
  // Returns a number that differs if the changes do; never 0 if there are any.
  uint32_t fingerprint() const;
};

// counts [layers, experts]: how many rows chose each expert in `num_steps` steps of all ranks.
// Layers without rows do not change, nor do layers of `now` behind those. is_over, which may be
// empty, is asked for each layer and by `rebalance`: once it returns true, the result is of no use.
ExpertChanges changes_for(std::span<const uint64_t> counts, uint64_t num_steps,
                          const Placements& now, const Rebalancer& rebalance,
                          const std::function<bool()>& is_over = {});

}  // namespace hocket
