// What a fit remembers of steps: medians by size. Bounded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "compute/overlap/medians.h"
#include "compute/overlap/op.h"

namespace hocket {

inline constexpr int kFitRemembers = 15;   // steps of a bucket
inline constexpr int kNumRowClasses = 48;  // of rows: up to 2^24
inline constexpr int kNumKeyCells = 64;

// What is learned of a half and a layer: first the operations.
inline constexpr size_t kFitBeside = kNumOps, kFitPart = kFitBeside + 1,
                        kFitDispatchKb = kFitPart + 1, kFitCombineKb = kFitDispatchKb + 1,
                        kNumFitted = kFitCombineKb + 1;
inline constexpr auto kFitAttnCore = static_cast<size_t>(Op::attn_core);
using FitValues = std::array<double, kNumFitted>;

using FitMedian = RunningMedian<kFitRemembers>;

struct RowFit {
  std::array<FitMedian, kNumFitted> medians;
  std::optional<FitValues> prior;  // its shape at the class's size, once it was asked for
  int num_seen = 0;
};
// Attention depends on keys too. Cells come and go.
struct KeyFit {
  int rows = 0, keys = 0;  // classes
  double log_rows = 0, log_keys = 0;
  double prior = 0;  // its shape at the classes' sizes; 0: none
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
