// From flags to ranks: what each gets of the machine, and their runners, loaded side by side.
// Thread: any.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/machine.h"
#include "base/result.h"
#include "compute/comm/loopback.h"
#include "compute/weights/loader.h"
#include "core/server_settings.h"
#include "engine/engine_info.h"
#include "engine/forecast/stage_forecast.h"
#include "engine/runner.h"

namespace hocket {

// Settings of --ep-size and its companions that need no model. Errors: bad_value; also for what
// several ranks cannot do yet.
Result<void> check_parallel(const ServerSettings& settings);

// What the flags leave of it. Errors: bad_value (--cpu-bind).
Result<Machine> machine_for(const ComputeSettings& settings);

LinkModel link_model(const ParallelSettings& settings);
// "loopback, 1 Gbit/s, 50 us".
std::string network_name(const ParallelSettings& settings);

// Equal parts of the memory; of the cores, sets without overlap where there are enough, whole NUMA
// nodes where the numbers allow.
std::vector<Machine> share_machine(const Machine& machine, int num_ranks);

struct RankLoading {
  const ServerSettings& settings;
  std::function<void(const LoadProgress&)> progress;  // of all ranks together; one call at a time
  std::optional<TokenId> tokenizer_eos;
};
// One runner a rank. Errors: those of Runner::create, of the lowest rank that has one.
Result<std::vector<std::unique_ptr<Runner>>> load_ranks(const RankLoading& loading);

// What the operations of this rank's model would take, on a machine and over a network that are
// only guessed at: for the shape of it, until steps were measured. Errors: those of
// ModelCost::measure.
Result<std::shared_ptr<const StageForecast>> forecast_stages(const Runner& runner,
                                                             const ParallelSettings& settings);

// What all ranks are together.
EngineInfo join_infos(std::span<const std::unique_ptr<Runner>> runners);

}  // namespace hocket
