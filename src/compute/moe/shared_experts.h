// The shared experts, which every token visits: one MLP over the rows of a half. They are computed
// while rows travel to the routed experts.
#pragma once

#include "compute/forward/half.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/experts.h"
#include "core/model_config.h"

namespace hocket {

// Computes them. Takes half.state.shared_x, sets half.state.shared_y.
void shared_experts(Backend& backend, const ModelConfig& model, const ExpertWeights& weights,
                    WorkBuffers& work, Half& half);

}  // namespace hocket
