#include "compute/weights/hf_hybrid.h"

#include <algorithm>
#include <cmath>

#include "compute/weights/hf_families.h"
#include "compute/weights/hf_parts.h"

namespace hocket {
namespace {

// Returns which layers are linear by layer_types; nothing if it is missing, empty or refused.
std::vector<bool> linear_by_types(JsonFields& config, const ModelConfig& model) {
  const std::vector<std::string> kinds = config.texts("layer_types");
  if (!kinds.empty() && static_cast<int>(kinds.size()) != model.num_layers)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: layer_types has {} entries for {} layers", kinds.size(),
                        model.num_layers));
  std::vector<bool> linear;
  for (const std::string& kind : kinds) {
    linear.push_back(kind == "linear_attention");
    if (!linear.back() && kind != "full_attention")
      config.refuse(unsupported(
          fmt::format("config.json: layer_types holds {}; supported are \"linear_attention\" and "
                      "\"full_attention\" here",
                      shown(kind))));
  }
  return config.status() ? linear : std::vector<bool>{};
}

// layer_types names the kind of each layer; without it every full_attention_interval-th attends.
void read_linear_layers(JsonFields& config, ModelConfig& model) {
  const int64_t interval = config.integer("full_attention_interval", kLayers, 4);
  model.layer_is_linear = linear_by_types(config, model);
  if (!config.status() || !model.layer_is_linear.empty()) return;
  for (int layer = 0; layer < model.num_layers; ++layer)
    model.layer_is_linear.push_back((layer + 1) % interval != 0);
}

constexpr Range kNets{1, 256};  // heads of a delta net, and their dims

void check_taps(JsonFields& config, std::string_view key) {
  const int64_t taps = config.integer(key, {1, 64});
  if (config.status() && taps != kConvTaps)
    config.refuse(unsupported(
        fmt::format("config.json: {} is {}, but supported is {}", key, taps, kConvTaps)));
}

void refuse_no_attention(JsonFields& config, const ModelConfig& model) {
  if (config.status() && model.num_kv_layers() == 0)
    config.refuse(
        unsupported("config.json: every layer is linear; supported are models with at least one "
                    "layer of full attention"));
}

void read_delta_net(JsonFields& config, ModelConfig& model) {
  DeltaNetConfig& net = model.delta_net;
  net.num_key_heads = static_cast<int>(config.integer("linear_num_key_heads", kNets));
  net.num_value_heads = static_cast<int>(config.integer("linear_num_value_heads", kNets));
  net.key_dim = static_cast<int>(config.integer("linear_key_head_dim", kNets));
  net.value_dim = static_cast<int>(config.integer("linear_value_head_dim", kNets));
  check_taps(config, "linear_conv_kernel_dim");
  if (!config.status()) return;
  if (net.num_value_heads % net.num_key_heads != 0)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: linear_num_key_heads {} does not divide "
                        "linear_num_value_heads {}",
                        net.num_key_heads, net.num_value_heads)
                      .with_param("linear_num_key_heads"));
}

// Gated attention beside gated delta nets.
void read_hybrid(JsonFields& config, ModelConfig& model, Rotation rotation) {
  read_gqa(config, model, rotation);
  model.qk_norm = true;
  model.centred_norms = true;
  model.attention_gate = config.flag("attn_output_gate", true);
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
  if (config.status()) read_delta_net(config, model);
  if (config.status()) read_linear_layers(config, model);
  refuse_no_attention(config, model);
  read_qwen_mtp(config, model);
}

void read_shared_expert_with_gate(JsonFields& config, MoeConfig& moe) {
  moe.shared_intermediate_size =
      static_cast<int>(config.integer("shared_expert_intermediate_size", kIntermediate));
  moe.shared_gate = true;
}

// Reads the layers of a list of linear_attn_config, which counts them from 1.
void read_layer_list(JsonFields& lists, ModelConfig& model, std::string_view key, bool linear,
                     std::vector<int>& times) {
  for (const int64_t number : lists.integers(key, {1, double(model.num_layers)})) {
    model.layer_is_linear[number - 1] = linear;
    ++times[number - 1];
  }
}

// The library's own keys for the same; without layer_types every fourth layer attends.
void read_kimi_keys(JsonFields& config, ModelConfig& model) {
  DeltaNetConfig& net = model.delta_net;
  net.channel_decay = true;
  net.num_key_heads = net.num_value_heads =
      static_cast<int>(config.integer("linear_num_heads", kNets));
  net.key_dim = net.value_dim = static_cast<int>(config.integer("linear_head_dim", kNets));
  check_taps(config, "linear_conv_kernel_dim");
  model.layer_is_linear = linear_by_types(config, model);
  if (!config.status() || !model.layer_is_linear.empty()) return;
  for (int layer = 0; layer < model.num_layers; ++layer)
    model.layer_is_linear.push_back((layer + 1) % 4 != 0);
}

// linear_attn_config lists the layers of each kind and gives the sizes of the delta nets.
void read_kimi_delta(JsonFields& config, ModelConfig& model) {
  std::optional<JsonFields> linear = config.object("linear_attn_config");
  if (!linear && config.has("linear_num_heads")) return read_kimi_keys(config, model);
  if (!linear)
    return config.refuse(error(ErrorCode::bad_config, "config.json: linear_attn_config is missing")
                             .with_fix("take the file from the model's publisher again"));
  DeltaNetConfig& net = model.delta_net;
  net.channel_decay = true;
  net.num_key_heads = net.num_value_heads = static_cast<int>(linear->integer("num_heads", kNets));
  net.key_dim = net.value_dim = static_cast<int>(linear->integer("head_dim", kNets));
  check_taps(*linear, "short_conv_kernel_size");
  model.layer_is_linear.assign(model.num_layers, false);
  std::vector<int> times(model.num_layers);
  read_layer_list(*linear, model, "full_attn_layers", false, times);
  read_layer_list(*linear, model, "kda_layers", true, times);
  const auto wrong = std::ranges::find_if(times, [](int count) { return count != 1; });
  if (linear->status() && wrong != times.end())
    linear->refuse(error(ErrorCode::bad_config,
                         "config.json: linear_attn_config names layer {} {} times in "
                         "full_attn_layers and kda_layers, but must name each layer once",
                         wrong - times.begin() + 1, *wrong));
  // A bound of the gate and gates of full rank are other keys here.
  for (const std::string& key : linear->keys())
    if (!linear->was_read(key))
      linear->refuse(unsupported(fmt::format(
          "config.json: linear_attn_config holds {}, which is not supported", shown(key))));
  config.absorb(*linear);
  const std::vector<bool> kinds = linear_by_types(config, model);
  if (!kinds.empty() && kinds != model.layer_is_linear)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: layer_types and the lists of linear_attn_config contradict "
                        "each other"));
}

}  // namespace

// Latent attention without rotation beside delta nets whose channels have decays of their own.
void read_kimi_linear(JsonFields& config, ModelConfig& model) {
  read_mla(config, model);
  model.rope = RopeConfig();
  model.softmax_scale = 1 / std::sqrt(double(model.head_dim));
  if (!config.flag("mla_use_nope", false))
    config.refuse(unsupported("config.json: mla_use_nope is false or missing; supported is true"));
  for (const std::string_view key : {"mla_use_output_gate", "use_mla_output_gate"})
    if (config.flag(key, false))
      config.refuse(
          unsupported(fmt::format("config.json: {} is true, but supported is false", key)));
  if (config.integer("attn_res_block_size", {0, kLayers.max}, 0) > 0)
    config.refuse(unsupported("config.json: attn_res_block_size is not 0, which is not supported"));
  if (config.has("dense_ffn_hidden") &&
      config.show("dense_ffn_hidden") != config.show("intermediate_size"))
    config.refuse(unsupported(
        fmt::format("config.json: dense_ffn_hidden is {}, but supported is only the value of "
                    "intermediate_size",
                    config.show("dense_ffn_hidden"))));
  if (config.status()) read_kimi_delta(config, model);
  refuse_no_attention(config, model);
  only(config, "moe_router_activation_func", "sigmoid");
  read_mtp(config, model);
  if (!read_expert_sizes(config, model,
                         {.count = "num_experts", .per_token = "num_experts_per_token"}))
    return;
  model.moe.score = MoeConfig::Score::sigmoid;
  model.moe.correction_bias = true;
  model.moe.group_score = MoeConfig::GroupScore::two_best;
  model.moe.norm_topk_prob = config.flag("moe_renormalize", true);
  if (config.has("num_expert_group")) read_expert_groups(config, model.moe, "num_expert_group");
  read_deepseek_layers(config, model, "num_shared_experts");
}

void read_qwen3_next(JsonFields& config, ModelConfig& model) {
  read_hybrid(config, model, {.share = 0.25});
  // The published files have a module of which config.json says nothing.
  if (!config.has("mtp_num_hidden_layers")) model.num_mtp_layers = 1;
  model.delta_net.grouped = true;
  read_qwen3_experts(config, model);
  if (!config.has("norm_topk_prob")) model.moe.norm_topk_prob = true;
  if (model.moe.num_experts > 0) read_shared_expert_with_gate(config, model.moe);
}

void read_qwen3_5(JsonFields& config, ModelConfig& model) {
  read_hybrid(config, model, {.share = 0.25, .three_axes = true});
  only(config, "output_gate_type", "swish");
}

void read_qwen3_5_moe(JsonFields& config, ModelConfig& model) {
  read_qwen3_5(config, model);
  if (!read_expert_sizes(config, model, {.count = "num_experts"})) return;
  model.moe.norm_topk_prob = true;
  model.moe.stacked = MoeConfig::Stacked::outputs_first;
  model.layer_is_moe.assign(model.num_layers, true);
  read_shared_expert_with_gate(config, model.moe);
}

}  // namespace hocket
