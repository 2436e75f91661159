#include "engine/balance/moving_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace hocket {

size_t MovingSteps::size_of(const StepReport& step) {
  const double octaves = std::log2(static_cast<double>(std::max(step.rows, 1u)));
  return static_cast<size_t>(std::min(static_cast<int>(octaves * kSizesOfAnOctave), kNumSizes - 1));
}

std::optional<MovingSteps::Comparison> MovingSteps::note(const StepReport& slowest,
                                                         bool is_moving) {
  const bool moves = std::exchange(was_moving_, is_moving) || is_moving;
  const size_t phase = std::min<size_t>(slowest.phase, kNumPhases - 1);
  RunningMedian<kMedianOf>& usual_us = usual_us_.at(phase).at(size_of(slowest));
  if (!moves) {
    usual_us.add(slowest.step_us);
    return std::nullopt;
  }
  if (usual_us.count() < kMinLikeSteps) return std::nullopt;
  return Comparison{.seconds = slowest.step_us / 1e6, .usual_seconds = usual_us.median() / 1e6};
}

}  // namespace hocket
