#include "compute/weights/hf_local.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "compute/weights/hf_families.h"
#include "compute/weights/hf_parts.h"
#include "compute/weights/rope_fields.h"

namespace hocket {
namespace {

// A window or a chunk, in tokens.
constexpr Range kReach{1, 1 << 30};

// layer_types names the kind of each layer: "full_attention", or `local`.
void read_local_layers(JsonFields& config, ModelConfig& model, std::string_view local) {
  const std::vector<std::string> kinds = config.texts("layer_types");
  if (!config.status()) return;
  if (static_cast<int>(kinds.size()) != model.num_layers)
    return config.refuse(error(ErrorCode::bad_config,
                               "config.json: layer_types has {} entries for {} layers",
                               kinds.size(), model.num_layers));
  for (const std::string& kind : kinds) {
    model.layer_is_local.push_back(kind == local);
    if (kind != local && kind != "full_attention")
      config.refuse(unsupported(
          fmt::format("config.json: layer_types holds {}; supported are \"full_attention\" and "
                      "\"{}\" here",
                      shown(kind), local)));
  }
}

// A list of 0 and 1, one for each layer.
std::vector<bool> read_marks(JsonFields& config, const ModelConfig& model, std::string_view key) {
  const std::vector<int64_t> marks = config.integers(key, {0, 1});
  if (config.status() && static_cast<int>(marks.size()) != model.num_layers)
    config.refuse(error(ErrorCode::bad_config, "config.json: {} has {} entries for {} layers", key,
                        marks.size(), model.num_layers));
  std::vector<bool> marked(model.num_layers);
  std::ranges::transform(marks | std::views::take(model.num_layers), marked.begin(),
                         [](int64_t mark) { return mark == 1; });
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

// Experts with sigmoid scores and a correction bias, without shared experts.
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

}  // namespace

// Sliding layers have heads, angles and sinks of their own. sliding_window_size, unlike
// sliding_window, does not count the query's own key.
void read_mimo_v2(JsonFields& config, ModelConfig& model) {
  read_gqa(config, model);
  model.value_dim = static_cast<int>(config.integer("v_head_dim", kHeadDim, model.head_dim));
  model.value_scale = config.number("attention_value_scale", {1e-6, 1e6}, 1);
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
  model.local.sinks = config.flag("add_swa_attention_sink_bias", false);
  model.local.window = static_cast<int>(config.has("sliding_window_size")
                                            ? config.integer("sliding_window_size", kReach) + 1
                                            : config.integer("sliding_window", kReach));
  model.local_rope = read_rope(config, {.dims = model.local.key_dim,
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
}

}  // namespace hocket
