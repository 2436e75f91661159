#include "compute/weights/hf_parts.h"

#include <algorithm>
#include <cmath>

#include "compute/kernels/combine.h"
#include "compute/weights/hf_families.h"
#include "compute/weights/rope_fields.h"

namespace hocket {
namespace {

// All layers together: a plan looks at each expert some ten times. Published models have 80,000.
constexpr int64_t kMaxExpertsOfModel = 1 << 18;
constexpr Range kRank{0, 1 << 16};
constexpr Range kSharedExperts{0, 1024};

void read_head_sizes(JsonFields& config, ModelConfig& model) {
  model.num_kv_heads = config.integer("num_key_value_heads", kHeads, model.num_heads);
  if (!config.status()) return;
  if (model.num_heads % model.num_kv_heads != 0)
    config.refuse(
        error(ErrorCode::bad_config,
              "config.json: num_key_value_heads {} does not divide num_attention_heads {}",
              model.num_kv_heads, model.num_heads)
            .with_param("num_key_value_heads"));
  if (!config.has("head_dim") && model.hidden_size % model.num_heads != 0)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: head_dim is missing, and num_attention_heads {} does not "
                        "divide hidden_size {}",
                        model.num_heads, model.hidden_size)
                      .with_param("head_dim"));
  model.head_dim = config.integer("head_dim", kHeadDim, model.hidden_size / model.num_heads);
  if (model.head_dim < kHeadDim.min || model.head_dim > kHeadDim.max)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: head_dim is missing, and hidden_size {} over "
                        "num_attention_heads {} would make it {}, not {:.0f} to {:.0f}",
                        model.hidden_size, model.num_heads, model.head_dim, kHeadDim.min,
                        kHeadDim.max)
                      .with_param("head_dim"));
}

// The library's values where a config of Mistral 4 says nothing about rotation.
void set_yarn_of_mistral4(RopeConfig& rope) {
  rope.scaling = RopeConfig::Scaling::yarn;
  rope.factor = 128;
  rope.original_context = 8192;
  rope.mscale = rope.mscale_all_dim = 1;
  rope.query_beta = 0.1;
}

}  // namespace

void only(JsonFields& config, std::string_view key, std::string_view supported) {
  const std::string value = config.text(key, supported);
  if (config.status() && value != supported)
    config.refuse(unsupported(fmt::format("config.json: {} is {}, but supported is \"{}\" here",
                                          key, shown(value), supported)));
}

void read_gqa(JsonFields& config, ModelConfig& model, Rotation rotation) {
  read_head_sizes(config, model);
  if (!config.status()) return;
  model.rope = read_rope(config, {.dims = model.head_dim,
                                  .share = rotation.share,
                                  .positions = model.max_position_embeddings,
                                  .three_axes = rotation.three_axes,
                                  .default_theta = rotation.theta});
  model.softmax_scale = 1 / std::sqrt(double(model.head_dim));
}

void read_mla(JsonFields& config, ModelConfig& model, MlaRotation rotation) {
  const bool mistral4 = rotation == MlaRotation::of_mistral4;
  MlaConfig& mla = model.mla;
  mla.q_rank = static_cast<int>(config.integer("q_lora_rank", kRank, 0));
  mla.kv_rank = static_cast<int>(config.integer("kv_lora_rank", {1, kRank.max}));
  mla.nope_dim = static_cast<int>(config.integer("qk_nope_head_dim", {1, kHeadDim.max}));
  mla.rope_dim = static_cast<int>(config.integer("qk_rope_head_dim", kHeadDim));
  mla.value_dim = static_cast<int>(config.integer("v_head_dim", {1, kHeadDim.max}));
  model.num_kv_heads = model.num_heads;
  model.head_dim = mla.nope_dim + mla.rope_dim;
  if (!config.status()) return;
  const int dims = mistral4 ? model.head_dim : mla.rope_dim;
  model.rope = read_rope(config, {.dims = dims,
                                  .share = double(mla.rope_dim) / dims,
                                  .positions = model.max_position_embeddings,
                                  .scaled_queries = mistral4});
  if (mistral4 && !config.has("rope_parameters") && !config.has("rope_scaling"))
    set_yarn_of_mistral4(model.rope);
  if (config.status() && model.rope.rotary_dim != mla.rope_dim)
    config.refuse(
        unsupported(fmt::format("config.json: with partial_rotary_factor, {} dimensions of a head "
                                "would turn; supported are the {} of qk_rope_head_dim",
                                model.rope.rotary_dim, mla.rope_dim)));
  model.rope.style = config.flag("rope_interleave", true) ? RopeConfig::Style::interleaved
                                                          : RopeConfig::Style::half;
  model.softmax_scale = 1 / std::sqrt(double(model.head_dim));
  if (model.rope.scaling == RopeConfig::Scaling::yarn && model.rope.factor > 1) {
    const double m = 0.1 * model.rope.mscale_all_dim * std::log(model.rope.factor) + 1;
    model.softmax_scale *= m * m;
  }
}

void read_mlp_layer_types(JsonFields& config, ModelConfig& model) {
  const std::vector<std::string> kinds = config.texts("mlp_layer_types");
  if (static_cast<int>(kinds.size()) != model.num_layers)
    return config.refuse(error(ErrorCode::bad_config,
                               "config.json: mlp_layer_types has {} entries for {} layers",
                               kinds.size(), model.num_layers));
  for (int layer = 0; layer < model.num_layers; ++layer) {
    model.layer_is_moe[layer] = kinds[layer] == "sparse";
    if (!model.layer_is_moe[layer] && kinds[layer] != "dense")
      config.refuse(unsupported(
          fmt::format("config.json: mlp_layer_types holds {}; supported are \"dense\" and "
                      "\"sparse\"",
                      shown(kinds[layer]))));
  }
}

bool read_expert_sizes(JsonFields& config, ModelConfig& model, const ExpertKeys& keys) {
  MoeConfig& moe = model.moe;
  const int64_t count = config.integer(keys.count, kExperts);
  if (!config.status() || count == 0) return false;
  if (count * model.num_layers > kMaxExpertsOfModel) {
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: {} {} in {} layers are {} experts, but supported are {} in "
                        "all",
                        keys.count, count, model.num_layers, count * model.num_layers,
                        kMaxExpertsOfModel)
                      .with_param(std::string(keys.count)));
    return false;
  }
  moe.num_experts = static_cast<int>(count);
  moe.top_k = static_cast<int>(config.integer(keys.per_token, {1, double(count)}));
  if (moe.top_k > kMaxSlots)
    config.refuse(unsupported(fmt::format("config.json: {} is {}; supported are 1 to {} experts",
                                          keys.per_token, moe.top_k, kMaxSlots)));
  moe.intermediate_size = static_cast<int>(config.integer(keys.width, kIntermediate));
  return config.status().has_value();
}

void read_expert_groups(JsonFields& config, MoeConfig& moe, std::string_view count_key) {
  const Range counts{1, double(moe.num_experts)};
  moe.num_groups = static_cast<int>(config.integer(count_key, counts));
  moe.top_groups = static_cast<int>(config.integer("topk_group", counts));
  if (!config.status()) return;
  const int group_size = moe.num_experts / moe.num_groups;
  if (moe.num_experts % moe.num_groups != 0 || moe.top_groups > moe.num_groups ||
      moe.top_groups * group_size < moe.top_k ||
      (moe.group_score == MoeConfig::GroupScore::two_best && group_size < 2))
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: {} experts in {} {} of which topk_group {} are kept "
                        "cannot give {} of them to a token",
                        moe.num_experts, count_key, moe.num_groups, moe.top_groups, moe.top_k)
                      .with_param(std::string(count_key)));
}

void read_shared_experts(JsonFields& config, MoeConfig& moe, std::string_view count_key) {
  const int64_t shared = config.integer(count_key, kSharedExperts, 0) * moe.intermediate_size;
  if (shared > kIntermediate.max)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: {} times moe_intermediate_size is {}, but must "
                        "be {:.0f} at most",
                        count_key, shared, kIntermediate.max)
                      .with_param(std::string(count_key)));
  moe.shared_intermediate_size = static_cast<int>(std::min(shared, int64_t(kIntermediate.max)));
}

void read_deepseek_layers(JsonFields& config, ModelConfig& model, std::string_view shared_key) {
  MoeConfig& moe = model.moe;
  moe.scaling_factor = config.number("routed_scaling_factor", {1e-6, 1e6});
  read_shared_experts(config, moe, shared_key);
  if (config.has("mlp_layer_types")) return read_mlp_layer_types(config, model);
  const int64_t dense = config.integer("first_k_dense_replace", {0, kLayers.max});
  const int64_t step = config.integer("moe_layer_freq", kLayers, 1);
  if (!config.status()) return;
  for (int layer = 0; layer < model.num_layers; ++layer)
    model.layer_is_moe[layer] = layer >= dense && layer % step == 0;
}

void read_mtp(JsonFields& config, ModelConfig& model, int missing) {
  model.num_mtp_layers =
      static_cast<int>(config.integer("num_nextn_predict_layers", {0, kLayers.max}, missing));
}

void read_qwen_mtp(JsonFields& config, ModelConfig& model) {
  model.num_mtp_layers =
      static_cast<int>(config.integer("mtp_num_hidden_layers", {0, kLayers.max}, 0));
}

void read_qwen3_experts(JsonFields& config, ModelConfig& model) {
  const std::vector<int64_t> dense = config.integers("mlp_only_layers", {0, 1 << 20});
  const int64_t step = config.integer("decoder_sparse_step", kLayers, 1);
  if (!read_expert_sizes(
          config, model,
          {.count = config.has("num_experts") ? "num_experts" : "num_local_experts"}))
    return;
  model.moe.norm_topk_prob = config.flag("norm_topk_prob", false);
  for (int layer = 0; layer < model.num_layers; ++layer)
    model.layer_is_moe[layer] = (layer + 1) % step == 0 && !std::ranges::count(dense, layer);
}

void read_local_layers(JsonFields& config, ModelConfig& model, std::string_view local,
                       Longer longer) {
  std::vector<std::string> kinds = config.texts("layer_types");
  if (!config.status()) return;
  if (longer == Longer::allowed && static_cast<int>(kinds.size()) > model.num_layers)
    kinds.resize(model.num_layers);
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

}  // namespace hocket
