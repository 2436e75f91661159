// --overlap and its companions: which plans a service may choose among. Every rank has the same
// orders, or the ranks do not meet; rank 0 alone chooses.   Thread: any.
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
  OverlapChoice choice;
  std::string name;  // of the choice: "auto", "none", "single-batch", "two-batch", "four-phase"
  std::vector<SettingChange> changes;
};

// Errors: bad_value (flags that contradict each other, an order that no one knows, a share beyond
// its range), those of OrderTable::with_file. One rank exchanges nothing: what would overlap then
// is dropped, and that is told.
Result<OverlapSettings> choose_overlap(const ParallelSettings& settings);

}  // namespace hocket
