// Reads the rotary embedding of a config.json: rope_parameters, or rope_theta and rope_scaling
// beside the other keys. Private to the room.   Source: docs/models.md, "rope".   Thread: any.
#pragma once

#include <optional>
#include <string_view>

#include "compute/weights/json_fields.h"
#include "core/model_config.h"

namespace hocket {

inline constexpr Range kThetas{1.0001, 1e15};

struct RopeInput {
  int dims = 0;      // dims of a head; for latent attention, of its rotary part
  double share = 1;  // rotated share of them if partial_rotary_factor is absent
  int positions = 0;
  // The model has positions on three axes (mrope_section). They are equal for text, which makes
  // them one.
  bool three_axes = false;
  bool scaled_queries = false;  // llama_4_scaling_beta is read
  bool proportional = false;    // that kind of scaling is allowed: it turns a share of all pairs
  // The dictionary in rope_parameters where layers differ, and the key beside the other keys.
  std::string_view layers = "full_attention";
  std::string_view theta_key = "rope_theta";
  double default_theta = 10000;
  std::optional<double> theta = {};  // if the caller has read it; theta_key is not read then
};
// Errors, kept in `config`: unsupported_model (kind of scaling), bad_config.
RopeConfig read_rope(JsonFields& config, const RopeInput& input);
// Makes `rope`, which turns rotary_dim dims without scaling, turn as many of a head whose dims are
// all paired. Errors, kept in `config`: bad_config.
void turn_proportionally(JsonFields& config, const RopeInput& input, RopeConfig& rope);

}  // namespace hocket
