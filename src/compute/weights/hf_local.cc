#include "compute/weights/hf_local.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <ranges>
#include <utility>

#include "compute/weights/hf_families.h"
#include "compute/weights/hf_parts.h"
#include "compute/weights/rope_fields.h"

namespace hocket {
namespace {

constexpr Range kLimits{1e-6, 1e6};
constexpr double kGateSlope = 1.702;  // in limited_gate of core/model_config.h

// A list of 0 and 1, one for each layer.
std::vector<bool> read_marks(JsonFields& config, const ModelConfig& model, std::string_view key) {
  const std::vector<int64_t> marks = config.integers(key, {0, 1});
  if (config.status() && static_cast<int>(marks.size()) != model.num_layers)
    config.refuse(error(ErrorCode::bad_config, "config.json: {} has {} entries for {} layers", key,
                        marks.size(), model.num_layers));
  std::vector<bool> marked;
  for (const int64_t mark : marks) marked.push_back(mark == 1);
  marked.resize(model.num_layers);
  return marked;
}

// The keys of the heads of local layers; a missing one means the number of the other layers.
struct LocalKeys {
  std::string_view heads, kv_heads, key_dim, value_dim;
};
void read_local_heads(JsonFields& config, ModelConfig& model, const LocalKeys& keys) {
  AttentionConfig& local = model.local;
  const AttentionConfig far = model.far_attention();
  local.num_heads = static_cast<int>(config.integer(keys.heads, kHeads, far.num_heads));
  local.num_kv_heads = static_cast<int>(config.integer(keys.kv_heads, kHeads, far.num_kv_heads));
  local.key_dim = static_cast<int>(config.integer(keys.key_dim, kHeadDim, far.key_dim));
  local.value_dim = static_cast<int>(config.integer(keys.value_dim, kHeadDim, far.value_dim));
  if (!config.status()) return;
  if (local.num_heads % local.num_kv_heads != 0)
    config.refuse(error(ErrorCode::bad_config, "config.json: {} {} does not divide {} {}",
                        keys.kv_heads, local.num_kv_heads, keys.heads, local.num_heads)
                      .with_param(std::string(keys.kv_heads)));
  if (local.key_dim != far.key_dim)
    config.refuse(unsupported(fmt::format(
        "config.json: {} {} differs from head_dim {}, which would need a softmax scale of its own",
        keys.key_dim, local.key_dim, far.key_dim)));
}

// Reads the experts of MiMo-V2: sigmoid scores, a correction bias, perhaps shared experts.
void read_mimo_experts(JsonFields& config, ModelConfig& model) {
  only(config, "scoring_func", "sigmoid");
  only(config, "topk_method", "noaux_tc");
  if (!read_expert_sizes(config, model, {.count = "n_routed_experts"})) return;
  MoeConfig& moe = model.moe;
  moe.score = MoeConfig::Score::sigmoid;
  moe.correction_bias = true;
  moe.group_score = MoeConfig::GroupScore::two_best;
  moe.norm_topk_prob = config.flag("norm_topk_prob", true);
  moe.scaling_factor = config.number("routed_scaling_factor", {1e-6, 1e6}, 1);
  read_expert_groups(config, moe);
  read_shared_experts(config, moe, "n_shared_experts");
  if (config.has("mlp_layer_types")) {
    read_mlp_layer_types(config, model);
  } else if (config.status()) {
    model.layer_is_moe = read_marks(config, model, "moe_layer_freq");
  }
}

// no_rope_layers holds 1 for each layer with rotation; if it is missing or empty, every
// no_rope_layer_interval-th layer has none. layer_types may say the same again.
void read_rotated_layers(JsonFields& config, ModelConfig& model) {
  const std::vector<int64_t> marks = config.integers("no_rope_layers", {0, 1});
  const int64_t interval = config.integer("no_rope_layer_interval", kLayers, 4);
  if (!config.status()) return;
  if (!marks.empty()) {
    model.layer_is_local = read_marks(config, model, "no_rope_layers");
  } else {
    for (int layer = 0; layer < model.num_layers; ++layer)
      model.layer_is_local.push_back((layer + 1) % interval != 0);
  }
  if (!config.has("layer_types")) return;
  const std::vector<bool> rotated = std::exchange(model.layer_is_local, {});
  read_local_layers(config, model, "chunked_attention");
  if (config.status() && rotated != model.layer_is_local)
    config.refuse(
        unsupported("config.json: layer_types and no_rope_layers disagree; layers of "
                    "\"chunked_attention\" must "
                    "be those that no_rope_layers marks as rotated"));
}

// Returns the one number that all layers of a kind have in a list of one number a layer.
std::optional<double> only_number(JsonFields& config, const ModelConfig& model,
                                  std::string_view key, bool local) {
  const std::vector<double> list = config.numbers(key, {0, 1e15});
  if (!config.status()) return std::nullopt;
  if (list.empty()) return std::nullopt;
  if (list.size() == 1) return list[0];
  if (static_cast<int>(list.size()) < model.num_layers) {
    config.refuse(error(ErrorCode::bad_config, "config.json: {} has {} entries for {} layers", key,
                        list.size(), model.num_layers));
    return std::nullopt;
  }
  std::optional<double> found;
  for (int layer = 0; layer < model.num_layers; ++layer) {
    if (model.is_local(layer) != local) continue;
    if (found && *found != list[layer])
      config.refuse(unsupported(
          fmt::format("config.json: {} differs among layers of one kind, {} and {}; supported is "
                      "one number for each kind",
                      key, *found, list[layer])));
    found = list[layer];
  }
  return found;
}

void read_listed_angles(JsonFields& config, ModelConfig& model) {
  const auto angles = [&](bool local) {
    const double theta = only_number(config, model, "rope_theta", local).value_or(10000);
    const double share = only_number(config, model, "partial_rotary_factors", local).value_or(1);
    if (config.status() && (theta < kThetas.min || theta > kThetas.max || share > 1))
      config.refuse(error(ErrorCode::bad_config,
                          "config.json: rope_theta holds {} and partial_rotary_factors {}; they "
                          "must be {} to {:.0f} and 1 at most",
                          theta, share, kThetas.min, kThetas.max));
    return std::pair(theta, share);
  };
  const auto [theta, share] = angles(false);
  const auto [local_theta, local_share] = angles(true);
  if (!config.status()) return;
  model.rope = read_rope(config, {.dims = model.head_dim,
                                  .share = share,
                                  .positions = model.max_position_embeddings,
                                  .theta = theta});
  const std::optional<JsonFields> kinds = config.object("rope_parameters");
  if (kinds && kinds->has("sliding_attention")) {
    model.local_rope = read_rope(config, {.dims = model.local.key_dim,
                                          .share = local_share,
                                          .positions = model.max_position_embeddings,
                                          .layers = "sliding_attention",
                                          .theta = local_theta});
    return;
  }
  model.local_rope.theta = local_theta;
  model.local_rope.rotary_dim = static_cast<int>(model.local.key_dim * local_share);
  if (config.status() && (model.local_rope.rotary_dim < 2 || model.local_rope.rotary_dim % 2 != 0))
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: partial_rotary_factors {} of head_dim {} rotates {} "
                        "dimensions in sliding layers, but must rotate an even number of 2 or more",
                        local_share, model.local.key_dim, model.local_rope.rotary_dim));
}

// Limits of activations, one for each layer; 0 or null: none.
std::vector<float> read_limits(JsonFields& config, const ModelConfig& model, std::string_view key) {
  const std::vector<double> limits = config.numbers(key, {0, kLimits.max}, 0);
  if (config.status() && !limits.empty() && static_cast<int>(limits.size()) < model.num_layers)
    config.refuse(error(ErrorCode::bad_config, "config.json: {} has {} entries for {} layers", key,
                        limits.size(), model.num_layers));
  return {limits.begin(), limits.end()};
}

// moe_layers_enum lists the layers with experts as text: "1,2,3". Without it they begin with the
// fourth.
void read_listed_experts(JsonFields& config, ModelConfig& model) {
  if (!config.has("moe_layers_enum")) {
    for (int layer = 3; layer < model.num_layers; ++layer) model.layer_is_moe[layer] = true;
    return;
  }
  const std::string list = config.text("moe_layers_enum", {});
  for (const auto part : list | std::views::split(',')) {
    const std::string_view text(part.begin(), part.end());
    int layer = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), layer);
    if (problem != std::errc() || end != text.data() + text.size() || layer < 0 ||
        layer >= kLayers.max)
      return config.refuse(error(ErrorCode::bad_config,
                                 "config.json: moe_layers_enum holds {}, which is no layer; it "
                                 "must hold numbers with commas between them",
                                 shown(text)));
    if (layer < model.num_layers) model.layer_is_moe[layer] = true;
  }
}

void read_step3p5_experts(JsonFields& config, ModelConfig& model) {
  only(config, "moe_router_activation", "sigmoid");
  if (!read_expert_sizes(config, model, {.count = "moe_num_experts", .per_token = "moe_top_k"}))
    return;
  MoeConfig& moe = model.moe;
  moe.score = MoeConfig::Score::sigmoid;
  moe.correction_bias = config.flag("use_moe_router_bias", true);
  moe.norm_topk_prob = config.flag("norm_expert_weight", true);
  moe.output_scale = config.number("moe_router_scaling_factor", {1e-6, 1e6}, 1);
  moe.shared_intermediate_size =
      static_cast<int>(config.integer("share_expert_dim", kIntermediate));
  moe.stacked = MoeConfig::Stacked::apart;
  moe.limits = read_limits(config, model, "swiglu_limits");
  moe.shared_limits = read_limits(config, model, "swiglu_limits_shared");
  if (config.status()) read_listed_experts(config, model);
}

}  // namespace

// Sliding layers have heads, angles and sinks of their own. sliding_window_size, unlike
// sliding_window, does not count the query's own key.
void read_mimo_v2(JsonFields& config, ModelConfig& model) {
  constexpr double kShare = 0.334;
  read_gqa(config, model, {.share = kShare, .theta = 5e6});
  model.value_dim = static_cast<int>(config.integer("v_head_dim", kHeadDim, model.head_dim));
  const bool unscaled = config.is_null("attention_value_scale");
  model.value_scale = config.number("attention_value_scale", {1e-6, 1e6}, unscaled ? 1 : 0.707);
  model.sinks = config.flag("add_full_attention_sink_bias", false);
  if (config.text("attention_projection_layout", "split") == "fused_qkv")
    config.refuse(
        unsupported("config.json: attention_projection_layout is \"fused_qkv\"; supported are "
                    "separate projections"));
  if (!config.status()) return;
  read_local_heads(config, model,
                   {.heads = "swa_num_attention_heads",
                    .kv_heads = "swa_num_key_value_heads",
                    .key_dim = "swa_head_dim",
                    .value_dim = "swa_v_head_dim"});
  model.local.sinks = config.flag("add_swa_attention_sink_bias", true);
  model.local.visible.window = static_cast<int>(
      config.has("sliding_window_size") ? config.integer("sliding_window_size", kWindowRange) + 1
                                        : config.integer("sliding_window", kWindowRange, 128));
  model.local_rope = read_rope(config, {.dims = model.local.key_dim,
                                        .share = kShare,
                                        .positions = model.max_position_embeddings,
                                        .layers = "sliding_attention",
                                        .theta_key = "swa_rope_theta"});
  if (config.has("hybrid_layer_pattern")) {
    model.layer_is_local = read_marks(config, model, "hybrid_layer_pattern");
  }
  if (config.has("layer_types")) {
    const std::vector<bool> pattern = std::exchange(model.layer_is_local, {});
    read_local_layers(config, model, "sliding_attention");
    if (config.status() && !pattern.empty() && pattern != model.layer_is_local)
      config.refuse(error(ErrorCode::bad_config,
                          "config.json: layer_types and hybrid_layer_pattern contradict each "
                          "other"));
  }
  if (model.layer_is_local.empty() && config.status())
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: layer_types and hybrid_layer_pattern are both missing"));
  read_mimo_experts(config, model);
  read_mtp(config, model, 3);
  model.local_mtp = true;
  // The modules are dense, even where no layer is.
  if (model.num_mtp_layers > 0)
    model.intermediate_size = static_cast<int>(config.integer("intermediate_size", kIntermediate));
}

// layer_types names the layers that slide; without it every second does, from the first on. All
// have sinks. Without any key of rotation it is YaRN's.
void read_gpt_oss(JsonFields& config, ModelConfig& model) {
  read_gqa(config, model, {.theta = 150000});
  if (!config.has("rope_parameters") && !config.has("rope_scaling")) {
    model.rope.scaling = RopeConfig::Scaling::yarn;
    model.rope.factor = 32;
    model.rope.original_context = 4096;
    model.rope.truncate = false;
  }
  model.qkv_bias = model.output_bias = config.flag("attention_bias", true);
  model.sinks = true;
  if (!config.status()) return;
  if (config.has("layer_types")) {
    read_local_layers(config, model, "sliding_attention");
  } else {
    for (int layer = 0; layer < model.num_layers; ++layer)
      model.layer_is_local.push_back(layer % 2 == 0);
  }
  model.local = model.far_attention();
  model.local.visible.window = static_cast<int>(config.integer("sliding_window", kWindowRange));
  model.local_rope = model.rope;
  if (!read_expert_sizes(config, model,
                         {.count = "num_local_experts", .width = "intermediate_size"}))
    return;
  MoeConfig& moe = model.moe;
  moe.norm_topk_prob = true;  // softmax over the chosen experts alone
  moe.gate_bias = true;
  moe.stacked = MoeConfig::Stacked::inputs_first;
  moe.interleaved = true;
  moe.activation = {Activation::Kind::limited_gate,
                    static_cast<float>(config.number("swiglu_limit", kLimits, 7))};
  if (config.number("swiglu_alpha", kLimits, kGateSlope) != kGateSlope)
    config.refuse(unsupported(fmt::format("config.json: swiglu_alpha is {}; supported is {}",
                                          config.show("swiglu_alpha"), kGateSlope)));
  model.mlp_bias = true;
  model.layer_is_moe.assign(model.num_layers, true);
}

// Reads true or false, or a number of which 0 is false, as published files hold both.
bool read_switch(JsonFields& config, std::string_view key, bool fallback) {
  const std::string shown = config.has(key) ? config.show(key) : "";
  const bool is_number = !shown.empty() && shown[0] >= '0' && shown[0] <= '9';
  return is_number ? config.integer(key, {0, 1e6}) != 0 : config.flag(key, fallback);
}

// Layers with rotation see chunks, and norm queries and keys after it; the others see all keys, and
// scale queries by their position.
void read_llama4(JsonFields& config, ModelConfig& model) {
  read_gqa(config, model, {.theta = 500000});
  if (!config.status()) return;
  read_rotated_layers(config, model);
  model.local = model.far_attention();
  model.local.visible.chunk =
      static_cast<int>(config.integer("attention_chunk_size", {0, kWindowRange.max}, 8192));
  model.local.unit_norms = config.flag("use_qk_norm", true);
  model.rope.style = RopeConfig::Style::interleaved;
  model.local_rope = std::exchange(model.rope, RopeConfig());
  if (read_switch(config, "attn_temperature_tuning", true)) {
    model.rope.query_beta = config.number("attn_scale", {0, 1e3}, 0.1);
    model.rope.original_context = config.number("floor_scale", {1, 1e12}, 8192);
    model.rope.query_shift = 1;
  }
  model.intermediate_size =
      static_cast<int>(config.integer("intermediate_size_mlp", kIntermediate));
  if (!read_expert_sizes(config, model,
                         {.count = "num_local_experts", .width = "intermediate_size"}))
    return;
  MoeConfig& moe = model.moe;
  moe.score = MoeConfig::Score::sigmoid;
  moe.weighted_inputs = true;
  moe.shared_intermediate_size = moe.intermediate_size;
  moe.stacked = MoeConfig::Stacked::inputs_first;
  if (moe.top_k != 1)
    config.refuse(unsupported(fmt::format(
        "config.json: num_experts_per_tok is {}; this family runs with 1 only", moe.top_k)));
  const int64_t step = config.integer("interleave_moe_layer_step", kLayers, 1);
  const std::vector<int64_t> listed = config.integers("moe_layers", {0, kLayers.max});
  if (!config.status()) return;
  for (int layer = 0; layer < model.num_layers; ++layer)
    model.layer_is_moe[layer] =
        listed.empty() ? (layer + 1) % step == 0 : std::ranges::count(listed, layer) > 0;
}

// Sliding layers have another number of heads, and angles without scaling. Lists with one entry for
// each layer may continue with those of prediction layers.
void read_step3p5(JsonFields& config, ModelConfig& model) {
  model.num_kv_heads = static_cast<int>(config.integer("num_attention_groups", kHeads));
  model.head_dim = static_cast<int>(config.integer("head_dim", kHeadDim));
  model.centred_norms = model.qk_norm = true;
  if (!config.flag("zero_centered", true))
    config.refuse(unsupported("config.json: zero_centered is false, but supported is true here"));
  model.head_gates = config.flag("use_head_wise_attn_gate", true);
  if (!config.status()) return;
  model.softmax_scale = 1 / std::sqrt(double(model.head_dim));
  read_local_layers(config, model, "sliding_attention", Longer::allowed);
  if (std::optional<JsonFields> other = config.object("attention_other_setting")) {
    read_local_heads(*other, model,
                     {.heads = "num_attention_heads",
                      .kv_heads = "num_attention_groups",
                      .key_dim = "head_dim",
                      .value_dim = "v_head_dim"});
    config.absorb(*other);
  } else {
    model.local = model.far_attention();
  }
  model.local.visible.window = static_cast<int>(config.integer("sliding_window", kWindowRange));
  if (!config.status()) return;
  if (model.num_heads % model.num_kv_heads != 0)
    return config.refuse(
        error(ErrorCode::bad_config,
              "config.json: num_attention_groups {} does not divide num_attention_heads {}",
              model.num_kv_heads, model.num_heads)
            .with_param("num_attention_groups"));
  read_listed_angles(config, model);
  read_step3p5_experts(config, model);
}

}  // namespace hocket
