// The experts that every token visits, as one MLP over the rows of a half; computed while the rows
// of the chosen ones travel.
#pragma once

#include "compute/forward/half.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/experts.h"
#include "core/model_config.h"

namespace hocket {

// Takes half.state.shared_x, sets half.state.shared_y.
void shared_experts(Backend& backend, const ModelConfig& model, const ExpertWeights& weights,
                    WorkBuffers& work, Half& half);

}  // namespace hocket
