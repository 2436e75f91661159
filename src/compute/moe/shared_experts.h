// The shared experts, which every token visits: one MLP over the rows of a half. They are computed
// while rows travel to the routed experts.
#pragma once

#include "compute/forward/half.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/experts.h"
#include "core/model_config.h"

namespace hocket {

struct SharedWeights {
  const ExpertWeights& mlp;
  // With MoeConfig::shared_gate: n = 1. A row's result is multiplied by sigmoid(gate . row).
  const PackedWeight& gate;
  Activation activation = {};
};
// Computes the shared experts. Takes half.state.shared_x, sets half.state.shared_y.
void shared_experts(Backend& backend, const ModelConfig& model, const SharedWeights& weights,
                    WorkBuffers& work, Half& half);

}  // namespace hocket
