// Times of operations by size, learned from steps: in each bucket of a phase (rows and keys by
// powers of two and halfway between) a running median that forgets slowly; between buckets a line,
// beyond them a robust line through the medians (floor + a rows + b keys), and where only one size
// was seen, the shape of a prior through it. Bounded; allocates at construction alone.
// Thread: engine.
#pragma once

#include <memory>

#include "compute/overlap/step_report.h"

namespace hocket {

// Before anything was measured: what is known of the model and the machine. Its shape counts, not
// its level. May be null: times are then taken to be half floor, half proportional to rows.
class FittedTimes final : public StageModel {
 public:
  FittedTimes(const LayerCounts& layers, std::shared_ptr<const StageModel> prior);
  FittedTimes(FittedTimes&&) noexcept;
  FittedTimes& operator=(FittedTimes&&) noexcept;
  ~FittedTimes() override;

  // A step as its slowest rank reported it. num_halves, parts: of its plan; the halves' sizes
  // follow from its share.
  void note(const StepReport& step, const Plan& plan, int num_halves);
  StageTimes at(const Bucket& bucket) const override;
  // Embedding, head, sampling, the engine's work.
  double beside_us(const Bucket& bucket) const;
  // Steps seen in the bucket of this size; 0: at() is a guess there.
  int num_seen(const Bucket& bucket) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hocket
