// What each supported architecture says in config.json beside the keys that all have. A new one is
// a row of the table and, if its keys are new, one short function; a key that would change the
// arithmetic and is not read by that function is refused (hf_config.cc). Private to the room.
// Source: docs/models.md, "keys".   Thread: any.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compute/weights/json_fields.h"
#include "core/model_config.h"

namespace hocket {

struct HfFamily {
  std::string_view architecture;
  // Fills attention, rope, MLA, experts. Before it the sizes of the model, num_heads and
  // layer_is_moe (all dense) are set. Errors are kept in the fields.
  void (*read)(JsonFields& config, ModelConfig& model);
};
std::span<const HfFamily> hf_families();

// Bounds that keep every product of sizes (a model's bytes at most) inside int64.
inline constexpr Range kLayers{1, 512};
inline constexpr Range kHidden{1, 1 << 16};
inline constexpr Range kHeads{1, 1024};
inline constexpr Range kHeadDim{2, 1024};
inline constexpr Range kIntermediate{1, 1 << 19};
inline constexpr Range kExperts{0, 4096};

// unsupported_model, with what is supported.
Error unsupported(const std::string& message);

}  // namespace hocket
