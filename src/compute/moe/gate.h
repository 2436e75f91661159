// The norm and the choice of experts for the rows of a half.
#pragma once

#include <cstdint>
#include <span>

#include "compute/forward/half.h"
#include "compute/kernels/arithmetic/packed_weight.h"
#include "compute/kernels/backend.h"
#include "core/model_config.h"

namespace hocket {

struct GateWeights {
  std::span<const float> norm;    // [hidden]
  PackedWeight gate;              // n = experts
  std::span<const float> bias;    // [experts] bias for the choice only, or empty
  std::span<const float> scales;  // [experts]; with MoeConfig::expert_scales
  // [hidden] with ModelConfig::result_norms: norms of the rows that the gate and the shared experts
  // get; `norm` is then that of the routed experts.
  std::span<const float> gate_norm, shared_norm;
};

// Computes the norm and the choice. Sets half.state.normed and half.state.routing, and
// half.state.shared_x for shared experts.
void gate(Backend& backend, const ModelConfig& model, const GateWeights& weights, WorkBuffers& work,
          Half& half);

// Replaces half.state.normed by rows that are multiplied by their weights (rounded), and the
// weights by 1: MoeConfig::weighted_inputs.
void weigh_inputs(Backend& backend, WorkBuffers& work, Half& half);

// Adds to counts[e] how often e occurs in `ids`.   Shapes: ids [rows, k], counts [experts].
// Thread: engine; one addition per chosen expert.
void count_choices(View<const int32_t> ids, std::span<uint32_t> counts);

}  // namespace hocket
