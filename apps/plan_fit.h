// Says for `hocket plan` which flags, how much memory or how many hosts would make a model fit.
// Thread: any.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "engine/forecast/forecast.h"

namespace hocket {

// Hosts like this one over which the experts are spread, so that the model fits.
struct FittingHosts {
  int hosts = 0, ranks = 0;
  int context_length = 0;  // tokens of the longest request there
};

struct FittingPlans {
  std::optional<FittingHosts> hosts;  // with the flags that were given
  // With those of the advice too, if they are not enough here; nullopt if that takes as many hosts.
  std::optional<FittingHosts> advised_hosts;
};

// Precondition: `now`, with `a_host` ranks on each host, does not fit.
FittingPlans find_fitting_plans(const ForecastInput& input, const Forecast& now,
                                const std::optional<Advice>& advice, int a_host);
// Returns one line: the flags and the memory that would be enough, then the numbers of hosts.
std::string fitting_text(const Advice& advice, const FittingPlans& plans);
// Adds both numbers of hosts, and the contexts there, to the plan's figures; null: there is none.
void add_fitting_json(const FittingPlans& plans, nlohmann::ordered_json& to);

}  // namespace hocket
