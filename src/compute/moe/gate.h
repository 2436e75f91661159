// Norm and expert choice for the rows of a half.
#pragma once

#include <span>

#include "compute/forward/half.h"
#include "compute/kernels/backend.h"
#include "compute/kernels/packed_weight.h"
#include "core/model_config.h"

namespace hocket {

struct GateWeights {
  std::span<const float> norm;  // [hidden]
  PackedWeight gate;            // n = experts
  std::span<const float> bias;  // [experts] correction of the choice, or empty
};

// Sets half.state.normed and half.state.routing, and half.state.shared_x for shared experts.
void gate(Backend& backend, const ModelConfig& model, const GateWeights& weights, WorkBuffers& work,
          Half& half);

}  // namespace hocket
