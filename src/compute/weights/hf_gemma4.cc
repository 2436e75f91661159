#include "compute/weights/hf_gemma4.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "compute/tensor/bf16.h"
#include "compute/weights/hf_families.h"
#include "compute/weights/hf_parts.h"
#include "compute/weights/rope_fields.h"

namespace hocket {
namespace {

constexpr double kMinCap = 1e-3;  // a smaller cap makes the logits nearly equal

// Every sixth layer and the last see all keys, unless layer_types says it.
void read_gemma4_layers(JsonFields& config, ModelConfig& model) {
  if (config.has("layer_types")) {
    read_local_layers(config, model, "sliding_attention");
    if (config.status() && model.layer_is_local.back())
      config.refuse(
          unsupported("config.json: the last of layer_types is \"sliding_attention\"; supported is "
                      "\"full_attention\" there")
              .with_fix("write \"full_attention\" there: the library that trains this family "
                        "computes its last layer so, whatever the file says"));
    return;
  }
  for (int layer = 0; layer < model.num_layers; ++layer)
    model.layer_is_local.push_back((layer + 1) % 6 != 0 && layer + 1 < model.num_layers);
}

struct GemmaHeads {
  int head_dim = 0, num_kv_heads = 0;
  bool operator==(const GemmaHeads&) const = default;
};

// Returns the heads of the layer that `number` names in per_layer_config: those in its object, else
// the model's own.
GemmaHeads heads_in(JsonFields& layers, const std::string& number, const GemmaHeads& own) {
  std::optional<JsonFields> layer = layers.object(number);
  if (!layer) return own;
  const GemmaHeads heads = {
      static_cast<int>(layer->integer("head_dim", kHeadDim, own.head_dim)),
      static_cast<int>(layer->integer("num_key_value_heads", kHeads, own.num_kv_heads))};
  for (const std::string& key : layer->keys())
    if (!layer->was_read(key) && !layer->is_null(key))
      layer->refuse(unsupported(
          fmt::format("{}: {} is {}, but supported are head_dim and num_key_value_heads there",
                      layer->where(), shown(key), layer->show(key))));
  layers.absorb(*layer);
  return heads;
}

// Newer versions of the library save what differs from head_dim and num_key_value_heads under the
// number of each layer, 05 or 5, in place of global_head_dim and num_global_key_value_heads.
void read_gemma4_heads_by_layer(JsonFields& layers, ModelConfig& model) {
  const GemmaHeads own = {model.local.key_dim, model.local.num_kv_heads};
  std::vector<GemmaHeads> all(static_cast<size_t>(model.num_layers), own);
  const std::vector<std::string> numbers = layers.keys();
  if (numbers.size() > all.size())
    return layers.refuse(error(ErrorCode::bad_config, "{} names {} layers, but the model has {}",
                               layers.where(), numbers.size(), all.size()));
  for (const std::string& number : numbers) {
    size_t layer = 0;
    const auto [end, failed] = std::from_chars(number.data(), number.data() + number.size(), layer);
    if (failed != std::errc() || end != number.data() + number.size() || layer >= all.size())
      return layers.refuse(error(ErrorCode::bad_config,
                                 "{} names the layer {}, but layers are 0 to {}", layers.where(),
                                 shown(number), all.size() - 1));
    all[layer] = heads_in(layers, number, own);
  }
  const GemmaHeads& far = all.back();  // the last layer sees all keys
  for (size_t l = 0; l < all.size(); ++l)
    if (all[l] != (model.layer_is_local[l] ? own : far))
      return layers.refuse(unsupported(
          fmt::format("{} gives layer {} {} heads of keys of {} numbers, but supported are equal "
                      "ones in all layers of {}",
                      layers.where(), l, all[l].num_kv_heads, all[l].head_dim,
                      model.layer_is_local[l] ? "sliding_attention" : "full_attention")));
  model.head_dim = far.head_dim;
  model.num_kv_heads = far.num_kv_heads;
}

// Layers that see all keys have heads of another size, fewer keys, and values that are their keys.
void read_gemma4_heads(JsonFields& config, ModelConfig& model) {
  AttentionConfig& local = model.local;
  local.num_heads = model.num_heads;
  local.num_kv_heads = static_cast<int>(config.integer("num_key_value_heads", kHeads, 4));
  local.key_dim = local.value_dim = static_cast<int>(config.integer("head_dim", kHeadDim, 256));
  local.visible.window = static_cast<int>(config.integer("sliding_window", kWindowRange, 512));
  model.values_are_keys = config.flag("attention_k_eq_v", false);
  // Read even where per_layer_config says it: the library then passes over these two.
  model.head_dim = static_cast<int>(config.integer("global_head_dim", kHeadDim, 512));
  const int64_t far_heads =
      config.integer("num_global_key_value_heads", kHeads, local.num_kv_heads);
  model.num_kv_heads = model.values_are_keys ? static_cast<int>(far_heads) : local.num_kv_heads;
  if (std::optional<JsonFields> layers = config.object("per_layer_config")) {
    if (config.status()) read_gemma4_heads_by_layer(*layers, model);
    config.absorb(*layers);
  }
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
  const auto input = [&](std::string_view layers, int dims, double share, double theta) {
    return RopeInput{.dims = dims,
                     .share = share,
                     .positions = model.max_position_embeddings,
                     .proportional = true,
                     .layers = layers,
                     .default_theta = theta};
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
  const RopeInput far = input("full_attention", model.head_dim, known ? 1 : 0.25, 1e6);
  model.local_rope = read_rope(config, input("sliding_attention", model.local.key_dim, 1, 10000));
  model.rope = read_rope(config, far);
  if (!known) turn_proportionally(config, far, model.rope);
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
  if (model.logit_cap != 0 && model.logit_cap < kMinCap)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: final_logit_softcapping is {}, but must be 0 or {} to 1e6",
                        config.show("final_logit_softcapping"), kMinCap)
                      .with_param("final_logit_softcapping"));
  // Published weights were trained with a factor of their own type.
  const auto factor = static_cast<float>(std::sqrt(double(model.hidden_size)));
  model.embedding_scale =
      model.stored_dtype == DType::bf16 ? to_float(from_float<Bf16>(factor)) : factor;
  read_gemma4_experts(config, model);
}

}  // namespace hocket
