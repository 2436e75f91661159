// The memory of a fit: medians by size class. Bounded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "compute/overlap/medians.h"
#include "compute/overlap/op.h"

namespace hocket {

inline constexpr int kFitRemembers = 15;  // values in each median
// The last class ends at 3 * 2^22 rows and also takes what is larger.
inline constexpr int kNumRowClasses = 48;
inline constexpr int kNumKeyCells = 64;

// The indices of what is learned of one half and layer: the operations come first.
inline constexpr size_t kFitBeside = kNumOps, kFitPart = kFitBeside + 1,
                        kFitDispatchKb = kFitPart + 1, kFitCombineKb = kFitDispatchKb + 1,
                        kNumFitted = kFitCombineKb + 1;
inline constexpr auto kFitAttnCore = static_cast<size_t>(Op::attn_core);
using FitValues = std::array<double, kNumFitted>;

using FitMedian = RunningMedian<kFitRemembers>;

struct RowFit {
  std::array<FitMedian, kNumFitted> medians;
  // The prior's times at the largest size of the class, once they were asked for.
  std::optional<FitValues> prior;
  int num_seen = 0;
};
// Attention also depends on keys. The cell that was used longest ago is overwritten.
struct KeyFit {
  int rows = 0, keys = 0;  // size classes
  double log_rows = 0, log_keys = 0;
  double prior = 0;  // the prior's time at the largest sizes of both classes; 0: none
  FitMedian median;
  uint64_t last_used = 0;
};

struct PhaseFit {
  std::array<RowFit, kNumRowClasses> rows;
  std::array<KeyFit, kNumKeyCells> keys;
  std::array<Line, kNumFitted> lines;
  int num_seen = 0;
};

}  // namespace hocket
