// The keys of config.json that one architecture has and others do not. A further architecture needs
// a row in the table and, if its keys differ, one short function. hf_arithmetic.cc refuses a key
// that changes the arithmetic if that function does not read it. Private to the room. Source:
// docs/models.md, "keys".   Thread: any.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "compute/weights/json_fields.h"
#include "core/model_config.h"

namespace hocket {

struct HfFamily {
  std::string_view architecture;
  // Fills attention, rope, MLA and experts. The caller has set the sizes of the model, num_heads
  // and layer_is_moe (all dense) before. Errors are kept in `config`.
  void (*read)(JsonFields& config, ModelConfig& model);
  // How config.json describes the language model: beside all else, or in text_config. A wrapped
  // model's head belongs to the whole, or to the language model itself.
  enum class Form : uint8_t { flat, wrapped, wrapped_with_head } form = Form::flat;
  // Values of keys that are missing: rms_norm_eps (required if empty), tie_word_embeddings.
  struct Defaults {
    std::optional<double> eps = 1e-6;
    bool tied = false;
  } defaults = {};
};
std::span<const HfFamily> hf_families();

// Bounds that keep every product of sizes (at most the bytes of a model) inside int64.
inline constexpr Range kLayers{1, 512};
inline constexpr Range kHidden{1, 1 << 16};
inline constexpr Range kHeads{1, 1024};
inline constexpr Range kHeadDim{2, 1024};
inline constexpr Range kIntermediate{1, 1 << 19};
inline constexpr Range kExperts{0, 4096};

// Returns unsupported_model with `message`, which says what is supported.
Error unsupported(const std::string& message);

}  // namespace hocket
