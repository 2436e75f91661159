#include "compute/weights/hf_families.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "compute/weights/rope_fields.h"

namespace hocket {
namespace {

constexpr Range kRank{0, 1 << 16};
constexpr Range kSharedExperts{0, 1024};

// Refuses the config if the key is present with another value.
void only(JsonFields& config, std::string_view key, std::string_view supported) {
  const std::string value = config.text(key, supported);
  if (config.status() && value != supported)
    config.refuse(unsupported(fmt::format("config.json: {} is {}, but supported is \"{}\" here",
                                          key, shown(value), supported)));
}

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

struct Rotation {
  double share = 1;         // rotated part of a head's dims if partial_rotary_factor is absent
  bool three_axes = false;  // as RopeQuestion::three_axes
};

// Reads grouped-query attention.
void read_gqa(JsonFields& config, ModelConfig& model, Rotation rotation = {}) {
  read_head_sizes(config, model);
  if (!config.status()) return;
  model.rope = read_rope(config, {.dims = model.head_dim,
                                  .share = rotation.share,
                                  .positions = model.max_position_embeddings,
                                  .three_axes = rotation.three_axes});
  model.softmax_scale = 1 / std::sqrt(double(model.head_dim));
}

// Multi-head latent attention. num_key_value_heads has no meaning here: every head has its own
// keys.
void read_mla(JsonFields& config, ModelConfig& model, bool scaled_queries = false) {
  MlaConfig& mla = model.mla;
  mla.q_rank = static_cast<int>(config.integer("q_lora_rank", kRank, 0));
  mla.kv_rank = static_cast<int>(config.integer("kv_lora_rank", {1, kRank.max}));
  mla.nope_dim = static_cast<int>(config.integer("qk_nope_head_dim", {1, kHeadDim.max}));
  mla.rope_dim = static_cast<int>(config.integer("qk_rope_head_dim", kHeadDim));
  mla.value_dim = static_cast<int>(config.integer("v_head_dim", {1, kHeadDim.max}));
  model.num_kv_heads = model.num_heads;
  model.head_dim = mla.nope_dim + mla.rope_dim;
  if (!config.status()) return;
  model.rope = read_rope(config, {.dims = mla.rope_dim,
                                  .positions = model.max_position_embeddings,
                                  .scaled_queries = scaled_queries});
  if (config.status() && model.rope.rotary_dim != mla.rope_dim)
    config.refuse(
        unsupported(fmt::format("config.json: with partial_rotary_factor, {} of the {} dimensions "
                                "of qk_rope_head_dim would turn; supported is all of them",
                                model.rope.rotary_dim, mla.rope_dim)));
  model.rope.style = config.flag("rope_interleave", true) ? RopeConfig::Style::interleaved
                                                          : RopeConfig::Style::half;
  model.softmax_scale = 1 / std::sqrt(double(model.head_dim));
  if (model.rope.scaling == RopeConfig::Scaling::yarn && model.rope.factor > 1) {
    const double m = 0.1 * model.rope.mscale_all_dim * std::log(model.rope.factor) + 1;
    model.softmax_scale *= m * m;
  }
}

// The keys of the sizes that every family with experts has.
struct ExpertKeys {
  std::string_view count;
  std::string_view per_token = "num_experts_per_tok";
  std::string_view width = "moe_intermediate_size";
};
// Returns true if the model has experts.
bool read_expert_sizes(JsonFields& config, ModelConfig& model, const ExpertKeys& keys) {
  MoeConfig& moe = model.moe;
  const int64_t count = config.integer(keys.count, kExperts);
  if (!config.status() || count == 0) return false;
  moe.num_experts = static_cast<int>(count);
  moe.top_k = static_cast<int>(config.integer(keys.per_token, {1, double(count)}));
  moe.intermediate_size = static_cast<int>(config.integer(keys.width, kIntermediate));
  return config.status().has_value();
}

// n_group and topk_group: only experts of the best groups are chosen.
void read_expert_groups(JsonFields& config, MoeConfig& moe) {
  const Range counts{1, double(moe.num_experts)};
  moe.num_groups = static_cast<int>(config.integer("n_group", counts));
  moe.top_groups = static_cast<int>(config.integer("topk_group", counts));
  if (!config.status()) return;
  const int group_size = moe.num_experts / moe.num_groups;
  if (moe.num_experts % moe.num_groups != 0 || moe.top_groups > moe.num_groups ||
      moe.top_groups * group_size < moe.top_k ||
      (moe.group_score == MoeConfig::GroupScore::two_best && group_size < 2))
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: {} experts in n_group {} of which topk_group {} are kept "
                        "cannot give num_experts_per_tok {}",
                        moe.num_experts, moe.num_groups, moe.top_groups, moe.top_k)
                      .with_param("n_group"));
}

// The shared experts are one MLP of `count_key` times the width of an expert.
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

// mlp_layer_types: "dense" or "sparse" for each layer.
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

// The first layers are dense; the others have experts, and shared experts beside them.
void read_deepseek_layers(JsonFields& config, ModelConfig& model) {
  MoeConfig& moe = model.moe;
  moe.scaling_factor = config.number("routed_scaling_factor", {1e-6, 1e6});
  read_shared_experts(config, moe, "n_shared_experts");
  if (config.has("mlp_layer_types")) return read_mlp_layer_types(config, model);
  const int64_t dense = config.integer("first_k_dense_replace", {0, kLayers.max});
  const int64_t step = config.integer("moe_layer_freq", kLayers, 1);
  if (!config.status()) return;
  for (int layer = 0; layer < model.num_layers; ++layer)
    model.layer_is_moe[layer] = layer >= dense && layer % step == 0;
}

void read_mtp(JsonFields& config, ModelConfig& model) {
  model.num_mtp_layers =
      static_cast<int>(config.integer("num_nextn_predict_layers", {0, kLayers.max}, 0));
}

// Experts with sigmoid scores, which are chosen with a correction bias.
void read_sigmoid_experts(JsonFields& config, ModelConfig& model) {
  only(config, "scoring_func", "sigmoid");
  only(config, "topk_method", "noaux_tc");
  read_mtp(config, model);
  if (!read_expert_sizes(config, model, {.count = "n_routed_experts"})) return;
  model.moe.score = MoeConfig::Score::sigmoid;
  model.moe.correction_bias = true;
  model.moe.group_score = MoeConfig::GroupScore::two_best;
  model.moe.norm_topk_prob = config.flag("norm_topk_prob", {});
  read_expert_groups(config, model.moe);
  read_deepseek_layers(config, model);
}

void read_llama(JsonFields& config, ModelConfig& model) {
  read_gqa(config, model);
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
  model.mlp_bias = config.flag("mlp_bias", false);
}

// Llama's layers. A sliding window is refused; if the key is missing, the window is 4096.
void read_mistral(JsonFields& config, ModelConfig& model) {
  read_gqa(config, model);
  if (!config.is_null("sliding_window") &&
      config.integer("sliding_window", {1, 1 << 30}, 4096) < model.max_position_embeddings)
    config.refuse(unsupported(fmt::format(
        "config.json: sliding_window is {}, shorter than the context of "
        "{}; supported is null",
        config.has("sliding_window") ? config.show("sliding_window") : "missing, which means 4096",
        model.max_position_embeddings)));
}

void read_qwen2(JsonFields& config, ModelConfig& model) {
  read_gqa(config, model);
  model.qkv_bias = true;
  config.flag("attention_bias", true);  // ignored: the biases always exist
}

void read_qwen3(JsonFields& config, ModelConfig& model, Rotation rotation) {
  read_gqa(config, model, rotation);
  model.qk_norm = true;
  model.qkv_bias = model.output_bias = config.flag("attention_bias", false);
}

void read_qwen3_dense(JsonFields& config, ModelConfig& model) {
  read_qwen3(config, model, {});
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

void read_qwen3_moe(JsonFields& config, ModelConfig& model) {
  read_qwen3(config, model, {});
  read_qwen3_experts(config, model);
}

void read_qwen3_vl_moe(JsonFields& config, ModelConfig& model) {
  read_qwen3(config, model, {.three_axes = true});
  read_qwen3_experts(config, model);
  model.moe.stacked = MoeConfig::Stacked::inputs_first;
}

void read_deepseek_v2(JsonFields& config, ModelConfig& model) {
  read_mla(config, model);
  only(config, "scoring_func", "softmax");
  read_mtp(config, model);
  if (!read_expert_sizes(config, model, {.count = "n_routed_experts"})) return;
  const std::string method = config.text("topk_method", "greedy");
  if (method == "group_limited_greedy") {
    read_expert_groups(config, model.moe);
  } else if (method == "greedy") {
    // Greedy choice ignores groups.
    for (const std::string_view key : {"n_group", "topk_group"}) config.integer(key, kExperts, 1);
  } else {
    config.refuse(
        unsupported(fmt::format("config.json: topk_method is {}; supported are \"greedy\" and "
                                "\"group_limited_greedy\" here",
                                shown(method))));
  }
  // Implementations disagree on the meaning of true together with routed_scaling_factor.
  if (config.flag("norm_topk_prob", false))
    config.refuse(unsupported("config.json: norm_topk_prob is true, but supported is false here"));
  read_deepseek_layers(config, model);
}

void read_deepseek_v3(JsonFields& config, ModelConfig& model) {
  read_mla(config, model);
  read_sigmoid_experts(config, model);
}

void read_glm4_moe(JsonFields& config, ModelConfig& model) {
  read_gqa(config, model, {.share = 0.5});
  model.qkv_bias = config.flag("attention_bias", false);
  model.qk_norm = config.flag("use_qk_norm", false);
  read_sigmoid_experts(config, model);
}

// DeepSeek-V3's layers with softmax scores, no correction bias, and queries scaled by position. Its
// files repeat V3's scoring_func and topk_method, which have no meaning here.
void read_mistral4(JsonFields& config, ModelConfig& model) {
  read_mla(config, model, true);
  for (const std::string_view key : {"scoring_func", "topk_method"}) config.text(key, "");
  if (!read_expert_sizes(config, model, {.count = "n_routed_experts"})) return;
  model.moe.group_score = MoeConfig::GroupScore::two_best;
  model.moe.norm_topk_prob = config.flag("norm_topk_prob", {});
  model.moe.stacked = MoeConfig::Stacked::outputs_first;
  read_expert_groups(config, model.moe);
  read_deepseek_layers(config, model);
}

// rotary_dim, the number of rotated dims, is the older form of partial_rotary_factor.
void read_minimax_m2(JsonFields& config, ModelConfig& model) {
  double share = 1;
  if (config.has("rotary_dim")) {
    const int dims = static_cast<int>(config.integer("head_dim", kHeadDim));
    share =
        double(config.integer("rotary_dim", {2, double(std::max(dims, 2))})) / std::max(dims, 2);
  }
  read_gqa(config, model, {.share = share});
  only(config, "scoring_func", "sigmoid");
  model.qk_norm = config.flag("use_qk_norm", true);
  only(config, "qk_norm_type", "per_layer");
  model.qk_norm_over_heads = model.qk_norm;
  for (const int64_t kind : config.integers("attn_type_list", {0, 1}))
    if (kind != 1)
      config.refuse(unsupported(
          "config.json: attn_type_list holds 0, linear attention; supported is 1, attention"));
  if (!config.flag("use_routing_bias", true))
    config.refuse(
        unsupported("config.json: use_routing_bias is false, but supported is true here"));
  if (!read_expert_sizes(config, model,
                         {.count = "num_local_experts", .width = "intermediate_size"}))
    return;
  model.moe.score = MoeConfig::Score::sigmoid;
  model.moe.correction_bias = true;
  model.moe.norm_topk_prob = true;
  model.layer_is_moe.assign(model.num_layers, true);
}

// Softmax scores, and a correction bias for the choice alone. The layers from moe_layer_start_index
// to moe_layer_end_index (-1: the last) have experts, every moe_layer_interval-th of them.
void read_ernie4_5_moe(JsonFields& config, ModelConfig& model) {
  read_gqa(config, model);
  model.rope.style = RopeConfig::Style::interleaved;
  only(config, "moe_gate", "topk");
  if (!config.flag("moe_use_aux_free", true))
    config.refuse(
        unsupported("config.json: moe_use_aux_free is false, but supported is true here"));
  if (!read_expert_sizes(config, model, {.count = "moe_num_experts", .per_token = "moe_k"})) return;
  model.moe.correction_bias = true;
  model.moe.norm_topk_prob = true;
  read_shared_experts(config, model.moe, "moe_num_shared_experts");
  const int64_t interval = config.integer("moe_layer_interval", kLayers, 1);
  const int64_t first = config.integer("moe_layer_start_index", {0, kLayers.max}, 0);
  const int64_t last = config.integer("moe_layer_end_index", {-1, kLayers.max}, -1);
  if (!config.status()) return;
  for (int layer = 0; layer < model.num_layers; ++layer)
    model.layer_is_moe[layer] =
        (layer + 1) % interval == 0 && layer >= first && (last < 0 || layer <= last);
}

constexpr std::array<HfFamily, 14> kFamilies = {
    {{"LlamaForCausalLM", read_llama},
     {"MistralForCausalLM", read_mistral},
     {"Qwen2ForCausalLM", read_qwen2},
     {"Qwen3ForCausalLM", read_qwen3_dense},
     {"Qwen3MoeForCausalLM", read_qwen3_moe},
     {"DeepseekV2ForCausalLM", read_deepseek_v2},
     {"DeepseekV3ForCausalLM", read_deepseek_v3},
     {"Glm4MoeForCausalLM", read_glm4_moe},
     {"Glm4MoeLiteForCausalLM", read_deepseek_v3},
     {"KimiK25ForConditionalGeneration", read_deepseek_v3, true},
     {"Qwen3VLMoeForConditionalGeneration", read_qwen3_vl_moe, true},
     {"MiniMaxM2ForCausalLM", read_minimax_m2},
     {"Ernie4_5_MoeForCausalLM", read_ernie4_5_moe},
     {"Mistral4ForCausalLM", read_mistral4}}};

}  // namespace

std::span<const HfFamily> hf_families() {
  return kFamilies;
}

Error unsupported(const std::string& message) {
  std::string names;
  for (const HfFamily& family : kFamilies)
    names += (names.empty() ? "" : ", ") + std::string(family.architecture);
  return error(ErrorCode::unsupported_model, "{}", message)
      .with_fix("choose a model of a supported form: " + names);
}

}  // namespace hocket
