// Learns from steps how long each operation takes at each size. Sizes fall into buckets; for each
// bucket of a half a cell keeps running medians, which forget slowly:
//
//   cell                  8 rows | 32 rows | 64 rows
//   median / prior's time r1     | r2      | r3
//
// The times at any size are the prior's there, times the mean of the ratios, of which the nearest
// count most. So the shape of the prior matters, and its level does not. If the time of a transfer
// is far from the expected one in several steps in a row, its link has changed, and all cells
// forget the times of that transfer. The memory is bounded and allocated at construction. Thread:
// engine. Source: docs/contracts/overlap.md, "Planner".
#pragma once

#include <memory>
#include <vector>

#include "base/running_median.h"
#include "compute/overlap/shift_detector.h"
#include "compute/overlap/step_report.h"

namespace hocket {

// Returns the upper border of the bucket that a step of this size belongs to: rows are powers of
// two and halfway between (1, 2, 3, 4, 6, 8, 12, ...), keys a row 1,024 times powers of four.
Bucket border_of(const Bucket& bucket);

class FittedTimes final : public StageModel {
 public:
  // prior: what is known of the model and the machine before anything was measured.
  FittedTimes(const LayerCounts& layers, std::shared_ptr<const StageModel> prior);

  // Learns from one step, as slowest_of() reports it. `plan` is the plan that the step was played
  // by, num_halves the number of halves of its order; the sizes of the halves follow from
  // plan.share.
  void note(const StepReport& step, const Plan& plan, int num_halves);
  // A bucket without rows gets the times of one row.
  StageTimes at(const Bucket& bucket) const override;
  // Returns the time of other work [us]: embedding, head, sampling, the engine's work.
  double other_us(const Bucket& bucket) const;
  // Returns how many steps or halves of this bucket are remembered; with 0, at() is a guess there.
  int num_seen(const Bucket& bucket) const { return num_learned(bucket, size_t{0}); }
  // Returns how often a link was found to have changed its speed.
  uint32_t num_link_shifts() const { return num_link_shifts_; }

 private:
  // The indices of what is learned of one half and layer: the stages come first.
  static constexpr size_t kOther = kNumStages, kPart = kOther + 1, kWave = kPart + 1,
                          kSpread = kWave + 1, kDispatch = kSpread + 1, kCombine = kDispatch + 1,
                          kNumFitted = kCombine + 1;
  using Values = std::array<double, kNumFitted>;
  using Median = RunningMedian<kTuning.median_steps>;
  // The messages of a half; is_spread says if they are parts in which more copies of rows travel.
  struct GrainOfRows {
    Grain grain;
    bool is_spread = false;
  };
  struct Cell {
    Bucket border, centre;  // the bucket; the size that its medians stand for
    Values prior{};         // the prior's times at `centre`; 0: unknown
    std::array<Median, kNumFitted> medians;
    uint64_t last_used = 0;  // 0: free
  };

  // Returns how many of the remembered steps measured this quantity at this size.
  int num_learned(const Bucket& bucket, size_t quantity) const;
  Cell& cell_for(const Bucket& bucket);
  Values prior_at(const Bucket& bucket) const;
  static double shape(const Values& prior, const Bucket& bucket, size_t quantity);
  Values values(const Bucket& bucket) const;
  Values measured_of(const StepReport& step) const;
  void judge_links(const StepReport& step, const Values& known, bool is_known, Values& measured);
  static void subtract_part_costs(Values& measured, const Values& expected, bool is_known,
                                  const GrainOfRows& rows);
  void learn(const Bucket& bucket, const Values& measured);

  LayerCounts layers_;
  std::shared_ptr<const StageModel> prior_;
  std::array<bool, kNumFitted> goes_with_keys_{};  // these depend on the keys, too
  std::vector<Cell> cells_;                        // for both phases
  Median latency_;
  std::array<ShiftDetector, 2> watches_;  // one for dispatch, one for combine
  uint32_t num_link_shifts_ = 0;
  uint64_t clock_ = 0;
};

}  // namespace hocket
