// Parts of config.json that several families read alike. Errors are kept in `config`. Private to
// the room. Source: docs/models.md, "keys".   Thread: any.
#pragma once

#include <cstdint>
#include <string_view>

#include "compute/weights/json_fields.h"
#include "core/model_config.h"

namespace hocket {

// Refuses the config if the key is present with another value.
void only(JsonFields& config, std::string_view key, std::string_view supported);

// Reads mlp_layer_types: "dense" or "sparse" for each layer.
void read_mlp_layer_types(JsonFields& config, ModelConfig& model);

struct Rotation {
  double share = 1;         // rotated part of a head's dims if partial_rotary_factor is absent
  bool three_axes = false;  // as RopeInput::three_axes
  double theta = 10000;     // if rope_theta is absent
};

// Reads grouped-query attention.
void read_gqa(JsonFields& config, ModelConfig& model, Rotation rotation = {});

// In Mistral 4, partial_rotary_factor is a share of a whole head, queries may be scaled by their
// position, and missing keys mean the YaRN of the published model. In the other families the factor
// is a share of qk_rope_head_dim.
enum class MlaRotation : uint8_t { of_rope_part, of_mistral4 };

// Reads multi-head latent attention. num_key_value_heads has no meaning there: every head has its
// own keys.
void read_mla(JsonFields& config, ModelConfig& model,
              MlaRotation rotation = MlaRotation::of_rope_part);

// The keys of the sizes that every family with experts has.
struct ExpertKeys {
  std::string_view count;
  std::string_view per_token = "num_experts_per_tok";
  std::string_view width = "moe_intermediate_size";
};
// Returns true if the model has experts.
bool read_expert_sizes(JsonFields& config, ModelConfig& model, const ExpertKeys& keys);
// Reads the number of groups and topk_group: only experts of the best groups are chosen.
void read_expert_groups(JsonFields& config, MoeConfig& moe, std::string_view count_key = "n_group");
// Reads the number of shared experts: one MLP of `count_key` times the width of an expert.
void read_shared_experts(JsonFields& config, MoeConfig& moe, std::string_view count_key);

// Reads which layers have experts where the first are dense, and the shared experts beside them.
void read_deepseek_layers(JsonFields& config, ModelConfig& model,
                          std::string_view shared_key = "n_shared_experts");
// Reads the experts of Qwen3 and its successors.
void read_qwen3_experts(JsonFields& config, ModelConfig& model);
// Reads the number of prediction modules; `missing` if the key is.
void read_mtp(JsonFields& config, ModelConfig& model, int missing = 0);
// The same by Qwen's key; 0 if it is missing.
void read_qwen_mtp(JsonFields& config, ModelConfig& model);

// A window or a chunk, in tokens.
inline constexpr Range kWindowRange{1, 1 << 30};

// If a list of one entry a layer may continue with those of layers that are not loaded.
enum class Longer : uint8_t { refused, allowed };

// Reads layer_types, which names the kind of each layer: "full_attention", or `local`.
void read_local_layers(JsonFields& config, ModelConfig& model, std::string_view local,
                       Longer longer = Longer::refused);

}  // namespace hocket
