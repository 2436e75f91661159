// Makes ranks from flags: divides the machine, and loads their runners at the same time.
// Thread: any.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/machine.h"
#include "base/result.h"
#include "cluster/control_plane.h"
#include "compute/comm/loopback.h"
#include "compute/weights/loader.h"
#include "core/server_settings.h"
#include "engine/plan/engine_info.h"
#include "engine/plan/stage_estimate.h"
#include "engine/runner/runner.h"

namespace hocket {

// Checks the settings of --ep-size and its companions that need no model. Errors: bad_value; also
// for features that several ranks do not support yet.
Result<void> check_parallel(const ServerSettings& settings);

// Checks that no setting asks for ranks with processes of their own, for an engine whose ranks are
// threads of one process. Errors: bad_value.
Result<void> check_one_process(const ParallelSettings& parallel);

// Returns the part of the machine that the flags allow. Errors: bad_value (--cpu-bind).
Result<Machine> machine_for(const ComputeSettings& settings);

LinkModel link_model(const ParallelSettings& settings);
// Returns "loopback, 1 Gbit/s, 50 us".
std::string network_name(const ParallelSettings& settings);

// Divides the machine: equal parts of the memory; cores without overlap if there are enough, in
// whole NUMA nodes where the numbers allow.
std::vector<Machine> share_machine(const Machine& machine, int num_ranks);

// Returns the place of this process among ranks of other processes, and its part of the machine.
// With --ep-num-redundant-experts auto it reports for how many replicas it has memory, and waits
// for the number on which all agree, because nothing can be loaded before: `max_wait`, or
// --rank-wait if that is longer. Errors: lost_rank if not all have reported by then; those of
// machine_for(), auto_replicas() and ControlPlane::failure().
inline constexpr Duration kMaxReplicasWait = std::chrono::minutes(10);
Result<RankConfig> join_before_loading(ControlPlane& control, const ServerSettings& settings,
                                       Duration max_wait = kMaxReplicasWait);

struct RankLoading {
  const ServerSettings& settings;
  std::function<void(const LoadProgress&)>
      progress;  // gets sums over all ranks; one call at a time
  std::optional<TokenId> tokenizer_eos;
};
// Loads one runner per rank. Errors: those of Runner::create, of the lowest rank that has one.
Result<std::vector<std::unique_ptr<Runner>>> load_ranks(const RankLoading& loading);

// Forecasts the times of this rank's operations on a guessed machine and network. Only their ratios
// matter, until steps were measured. Errors: those of ModelCost::measure.
Result<std::shared_ptr<const StageEstimate>> estimate_stages(const Runner& runner,
                                                             const ParallelSettings& settings);

// Adds up the sizes of all ranks.
EngineInfo join_infos(std::span<const std::unique_ptr<Runner>> runners);

}  // namespace hocket
