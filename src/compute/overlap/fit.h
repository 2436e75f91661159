// Times of operations by size, learned from steps: in each bucket of a phase (rows and keys by
// powers of two and halfway between) a running median that forgets slowly. Between and beyond
// buckets the medians are compared with a shape, that of a prior or else a line through them
// (floor + a rows + b keys), and the ratio is interpolated. Transfers: bytes by rows, and time by
// bytes over the last steps alone, for links change. Bounded; allocates at construction alone.
// Thread: engine.   Source: docs/contracts/overlap.md, "Planner".
#pragma once

#include <memory>

#include "compute/overlap/step_report.h"

namespace hocket {

// Rows and keys by powers of two and halfway between: 1, 2, 3, 4, 6, 8, 12, ...
int size_class(int64_t size);         // of sizes up to the class's; 0: none
int64_t size_of_class(int of_class);  // the largest

// Before anything was measured: what is known of the model and the machine. Its shape counts, not
// its level. May be null: where one size was seen, times are then taken to be half floor, half
// proportional to rows (or to keys, where they cause them).
class FittedTimes final : public StageModel {
 public:
  FittedTimes(const LayerCounts& layers, std::shared_ptr<const StageModel> prior);
  FittedTimes(FittedTimes&&) noexcept;
  FittedTimes& operator=(FittedTimes&&) noexcept;
  ~FittedTimes() override;

  // A step as its slowest rank reported it. num_halves, parts: of its plan; the halves' sizes
  // follow from its share.
  void note(const StepReport& step, const Plan& plan, int num_halves);
  // A bucket without rows is taken for one of one row.
  StageTimes at(const Bucket& bucket) const override;
  // Embedding, head, sampling, the engine's work.
  double beside_us(const Bucket& bucket) const;
  // Steps seen in the bucket of this size, as a whole or as halves; 0: at() is a guess there.
  int num_seen(const Bucket& bucket) const;
  // Of the phase, of any size; 0 and no prior: at() is 0.
  int num_seen(Phase phase) const;
  // How often the links were found to have become others.
  uint32_t num_link_shifts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
