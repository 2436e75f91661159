// Learns from steps how long each operation takes at each size. Rows and keys fall into classes
// (powers of two and the sizes halfway between); each class of a phase keeps a running median,
// which forgets slowly. Between and beyond the classes that were seen, the medians are divided by a
// shape, and this ratio is interpolated. The shape is that of a prior, else a line through the
// medians (floor + a rows + b keys). A transfer is learned as bytes by rows and as time by bytes;
// the latter uses the last steps only, because links change. The memory is bounded and allocated at
// construction.
// Thread: engine.   Source: docs/contracts/overlap.md, "Planner".
#pragma once

#include <memory>

#include "compute/overlap/step_report.h"

namespace hocket {

// The sizes of the classes are the powers of two and halfway between: 1, 2, 3, 4, 6, 8, 12, ...
int size_class(int64_t size);         // the smallest class that holds `size`; 0 for size 0
int64_t size_of_class(int of_class);  // the largest size in the class

// The prior is what is known of the model and the machine before anything was measured. Only its
// shape counts, not its level. It may be null; where only one size was seen, each time is then
// assumed to be half constant, half proportional to rows (attention: to keys).
class FittedTimes final : public StageModel {
 public:
  FittedTimes(const LayerCounts& layers, std::shared_ptr<const StageModel> prior);
  FittedTimes(FittedTimes&&) noexcept;
  FittedTimes& operator=(FittedTimes&&) noexcept;
  ~FittedTimes() override;

  // Learns from one step, as slowest_of() reports it. `plan` is the plan that the step was played
  // by, num_halves the number of halves of its order; the sizes of the halves follow from
  // plan.share.
  void note(const StepReport& step, const Plan& plan, int num_halves);
  // A bucket without rows gets the times of one row.
  StageTimes at(const Bucket& bucket) const override;
  // Returns the time beside the layers [us]: embedding, head, sampling, the engine's work.
  double beside_us(const Bucket& bucket) const;
  // Returns how many steps or halves of this size class were learned; with 0, at() is a guess
  // there.
  int num_seen(const Bucket& bucket) const;
  // Returns the same for all sizes of a phase; with 0 and without a prior, at() returns 0.
  int num_seen(Phase phase) const;
  // Returns how often a link was found to have changed its speed.
  uint32_t num_link_shifts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
