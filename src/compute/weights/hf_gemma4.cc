#include "compute/weights/hf_gemma4.h"

#include <cmath>

#include "compute/tensor/bf16.h"
#include "compute/weights/hf_families.h"
#include "compute/weights/hf_parts.h"
#include "compute/weights/rope_fields.h"

namespace hocket {
namespace {

constexpr double kCapMin = 1e-3;  // a smaller cap makes the logits nearly equal

// Every sixth layer and the last see all keys, unless layer_types says it.
void read_gemma4_layers(JsonFields& config, ModelConfig& model) {
  if (config.has("layer_types")) {
    read_local_layers(config, model, "sliding_attention");
    if (config.status() && model.layer_is_local.back())
      config.refuse(
          unsupported("config.json: the last of layer_types is \"sliding_attention\"; supported is "
                      "\"full_attention\" there"));
    return;
  }
  for (int layer = 0; layer < model.num_layers; ++layer)
    model.layer_is_local.push_back((layer + 1) % 6 != 0 && layer + 1 < model.num_layers);
}

// Layers that see all keys have heads of another size, fewer keys, and values that are their keys.
void read_gemma4_heads(JsonFields& config, ModelConfig& model) {
  AttentionConfig& local = model.local;
  local.num_heads = model.num_heads;
  local.num_kv_heads = static_cast<int>(config.integer("num_key_value_heads", kHeads, 4));
  local.key_dim = local.value_dim = static_cast<int>(config.integer("head_dim", kHeadDim, 256));
  local.window = static_cast<int>(config.integer("sliding_window", kReach, 512));
  model.values_are_keys = config.flag("attention_k_eq_v", false);
  model.head_dim = static_cast<int>(config.integer("global_head_dim", kHeadDim, 512));
  const int64_t far_heads =
      config.integer("num_global_key_value_heads", kHeads, local.num_kv_heads);
  model.num_kv_heads = model.values_are_keys ? static_cast<int>(far_heads) : local.num_kv_heads;
  for (const int kv_heads : {local.num_kv_heads, model.num_kv_heads})
    if (config.status() && model.num_heads % kv_heads != 0)
      config.refuse(error(ErrorCode::bad_config,
                          "config.json: num_attention_heads {} is no multiple of the {} heads of "
                          "keys",
                          model.num_heads, kv_heads)
                        .with_param("num_key_value_heads"));
  model.qk_norm = model.value_norm = true;
  model.softmax_scale = 1;
}

void read_gemma4_angles(JsonFields& config, ModelConfig& model) {
  const auto rope = [&](std::string_view layers, int dims, double share, double theta) {
    return read_rope(config, {.dims = dims,
                              .share = share,
                              .positions = model.max_position_embeddings,
                              .proportional = true,
                              .layers = layers,
                              .default_theta = theta});
  };
  for (const std::string_view key : {"rope_scaling", "partial_rotary_factor"})
    if (config.has(key))
      config.refuse(unsupported(fmt::format(
          "config.json: {} is {}, but supported are the two dictionaries of rope_parameters here",
          key, config.show(key))));
  const std::optional<JsonFields> known = config.object("rope_parameters");
  for (const std::string_view layers : {"sliding_attention", "full_attention"})
    if (known && !known->has(layers))
      config.refuse(error(ErrorCode::bad_config,
                          "config.json: rope_parameters holds no dictionary for the layers of {}",
                          layers)
                        .with_fix("take the file from the model's publisher again"));
  model.local_rope = rope("sliding_attention", model.local.key_dim, 1, 10000);
  model.rope = rope("full_attention", model.head_dim, known ? 1 : 0.25, 1e6);
  if (known) return;
  model.rope.scaling = RopeConfig::Scaling::proportional;
  model.rope.turning_dim = model.rope.rotary_dim;
  model.rope.rotary_dim = model.head_dim;
}

void read_gemma4_experts(JsonFields& config, ModelConfig& model) {
  if (!config.flag("enable_moe_block", false))
    config.refuse(
        unsupported("config.json: enable_moe_block is false or missing; supported is true"));
  if (!read_expert_sizes(config, model, {.count = "num_experts", .per_token = "top_k_experts"}))
    return config.refuse(
        unsupported("config.json: num_experts is 0, but supported is at least 1 here"));
  MoeConfig& moe = model.moe;
  moe.norm_topk_prob = moe.expert_scales = true;
  moe.logit_scale = 1 / std::sqrt(double(model.hidden_size));
  moe.stacked = MoeConfig::Stacked::outputs_first;
  moe.activation.kind = moe.shared_activation.kind = Activation::Kind::gelu_tanh;
  model.intermediate_size = static_cast<int>(config.integer("intermediate_size", kIntermediate));
  moe.shared_intermediate_size = model.intermediate_size;
  model.layer_is_moe.assign(model.num_layers, true);
}

}  // namespace

// Experts beside a dense MLP in each layer, with norms around both and around attention.
void read_gemma4(JsonFields& config, ModelConfig& model) {
  only(config, "hidden_activation", "gelu_pytorch_tanh");
  only(config, "use_bidirectional_attention", "vision");  // among the tokens of an image
  if (config.integer("hidden_size_per_layer_input", {0, kHidden.max}, 256) != 0)
    config.refuse(unsupported(
        "config.json: hidden_size_per_layer_input is not 0, embeddings for each layer, which are "
        "not supported"));
  if (config.integer("num_kv_shared_layers", {0, kLayers.max}, 0) != 0)
    config.refuse(unsupported(
        "config.json: num_kv_shared_layers is not 0, layers that share keys and values, which are "
        "not supported"));
  if (config.status()) read_gemma4_layers(config, model);
  if (config.status()) read_gemma4_heads(config, model);
  if (config.status()) read_gemma4_angles(config, model);
  model.result_norms = true;
  model.logit_cap = config.number("final_logit_softcapping", {0, 1e6}, 0);
  if (model.logit_cap != 0 && model.logit_cap < kCapMin)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: final_logit_softcapping is {}, but must be 0 or {} to 1e6",
                        config.show("final_logit_softcapping"), kCapMin)
                      .with_param("final_logit_softcapping"));
  // Published weights were trained with a factor of their own type.
  const auto factor = static_cast<float>(std::sqrt(double(model.hidden_size)));
  model.embedding_scale =
      model.stored_dtype == DType::bf16 ? to_float(from_float<Bf16>(factor)) : factor;
  read_gemma4_experts(config, model);
}

}  // namespace hocket
