// Reads --overlap and its companions: which plans a service may choose among. All ranks must have
// the same orders, else they do not connect; the lead alone chooses. Thread: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "compute/overlap/order_table.h"
#include "compute/overlap/planner.h"
#include "core/server_settings.h"

namespace hocket {

struct OverlapSettings {
  std::shared_ptr<const OrderTable> orders;
  OverlapChoices choices;
  std::string name;  // "auto", "two-batch", "four-phase", ..; by phase: "prefill none, decode auto"
  std::vector<SettingChange> changes;
};

// Chooses the plans of both phases. Errors: bad_value (flags that contradict each other, an unknown
// order, a share beyond its range), those of OrderTable::with_file. A single rank exchanges
// nothing, so a choice of overlap is dropped there and added to `changes`.
Result<OverlapSettings> choose_overlap(const ParallelSettings& settings);

}  // namespace hocket
