// Chooses which rank holds which experts, and how many replicas there are, from the settings.
// Thread: any.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/moe/placement.h"
#include "core/server_settings.h"
#include "engine/plan/engine_info.h"
#include "engine/plan/model_choice.h"

namespace hocket {

// Checks the settings of placement and of the record of experts that need no model. Errors:
// bad_value, naming the flag.
Result<void> check_places(const ParallelSettings& settings);

// Returns the placement of a layer that --eplb-algorithm makes from the one of now, for the work of
// each expert. is_over may be empty; once it returns true, the result is of no use, and comes soon.
using Rebalancer = std::function<Placement(std::span<const uint64_t> work, const Placement& now,
                                           const std::function<bool()>& is_over)>;
// Errors: bad_value (--eplb-algorithm).
Result<Rebalancer> rebalancer_of(const ParallelSettings& settings, const ModelChoice& choice,
                                 const Placement& any);

struct ExpertPlaces {
  Placements placements;
  std::vector<SettingChange> changes;  // the number of replicas that `auto` chose, and others
};
// Returns the replicas in each layer of a rank for `--ep-num-redundant-experts auto`: up to an
// eighth of the memory that the weights leave; nullopt if the flag names a number. All ranks must
// have as many, so ranks of several hosts agree on the least (ClusterView::replicas). `choice` is
// the form that all ranks share, of a model with experts. available_bytes: memory of a rank.
// Errors: io, bad_value (--combine-groups).
Result<std::optional<int>> auto_replicas(const ParallelSettings& settings,
                                         const ModelChoice& choice, int num_ranks,
                                         int64_t available_bytes);

// `agreed` is the number for `auto` on which the ranks have agreed; nullopt: auto_replicas().
// Errors: io, bad_value (--init-expert-location, --ep-num-redundant-experts, --combine-groups);
// out_of_memory if the rank has no memory for as many as were agreed.
Result<ExpertPlaces> place_experts(const ParallelSettings& settings, const ModelChoice& choice,
                                   int num_ranks, int64_t available_bytes,
                                   std::optional<int> agreed = std::nullopt);

// Memory for experts that a rank loads while it serves: places for experts of the model's layers,
// and for those of modules where these are larger.
struct MovingMemory {
  struct Slots {
    int64_t num = 0, bytes = 0;  // bytes of each
  };
  Slots of_layers, of_modules;
  int64_t bytes() const {
    return of_layers.num * of_layers.bytes + of_modules.num * of_modules.bytes;
  }
};
// Returns the memory that a rank needs beside its own experts:
//   always              the experts of one layer
//   --tolerate-ranks    and those of one module, if they are larger
//   + --weight-cache    and those that a rank takes over in the epoch that needs most, because the
//                       mapped file cannot give up memory
// `source`: as in measure_weights(). `placements` are those of place_experts(). Errors: those of
// Model::load.
Result<MovingMemory> moving_memory(const ServerSettings& settings, const ModelChoice& choice,
                                   const Placements& placements, const WeightSource* source);

}  // namespace hocket
