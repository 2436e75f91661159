// Rotary embedding: frequencies for every kind of scaling, and the angles of one step's rows.
#pragma once

#include <span>
#include <vector>

#include "compute/kernels/backend.h"
#include "core/model_config.h"

namespace hocket {

struct RopeFrequencies {
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  float attention_factor = 1;   // multiplies cos and sin
};
// Supports every RopeConfig::Scaling. Errors: none; the config was validated before.
// Source: docs/contracts/arithmetic.md, "rope".
RopeFrequencies rope_frequencies(const RopeConfig& config);

// cos and sin of float(position) * inv_freq (one fp32 product), times the attention factor.
// Shapes: positions [rows]; cos, sin [rows, rotary_dim / 2].   Thread: engine; workers split rows.
void rope_angles(Backend& backend, const RopeFrequencies& frequencies,
                 std::span<const int32_t> positions, View<float> cos, View<float> sin);

// The factor of the queries of each row: 1 + query_beta * ln(1 + floor((p + query_shift) /
// original_context)), ln that of math.h, in fp32.   Shapes: positions, factors [rows].   Thread:
// any.
void query_factors(const RopeConfig& config, std::span<const int32_t> positions,
                   View<float> factors);

// Multiplies each row of x by its factor, in fp32.
// Shapes: factors [rows, 1]; x [rows, n].   Thread: engine; workers split rows.
void scale_rows(Backend& backend, View<const float> factors, View<float> x);

}  // namespace hocket
