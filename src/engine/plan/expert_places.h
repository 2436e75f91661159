// Chooses which rank holds which experts, and how many replicas there are, from the settings.
// Thread: any.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

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
// each expert.
using Rebalancer = std::function<Placement(std::span<const uint64_t> work, const Placement& now)>;
// Errors: bad_value (--eplb-algorithm).
Result<Rebalancer> rebalancer_of(const ParallelSettings& settings, const ModelChoice& choice,
                                 const Placement& any);

struct ExpertPlaces {
  Placements placements;
  std::optional<SettingChange> change;  // the number of replicas that `auto` chose
};
// `choice` is the form that all ranks share, of a model with experts. available_bytes: memory of a
// rank, from which `--ep-num-redundant-experts auto` takes up to an eighth of what the weights
// leave; then the number differs between hosts with unequal memory, which cannot join each other.
// Errors: io, bad_value (--init-expert-location, --ep-num-redundant-experts, --combine-groups).
Result<ExpertPlaces> place_experts(const ParallelSettings& settings, const ModelChoice& choice,
                                   int num_ranks, int64_t available_bytes);

// Returns for how many experts a rank needs memory beside its own while experts move: those of a
// layer. With --tolerate-ranks and --weight-cache, whose file cannot give up memory, also those
// that a rank takes over in the epoch that needs most. `placements` are those of place_experts().
int64_t moving_places(const ServerSettings& settings, const ModelConfig& model,
                      const Placements& placements);

}  // namespace hocket
