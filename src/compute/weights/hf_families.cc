#include "compute/weights/hf_families.h"

#include <algorithm>
#include <array>

#include "compute/weights/hf_gemma4.h"
#include "compute/weights/hf_hybrid.h"
#include "compute/weights/hf_local.h"
#include "compute/weights/hf_parts.h"

namespace hocket {
namespace {

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
  // Files in GGUF hold the rows of q and k in the order of this style.
  if (config.flag("rope_interleave", false)) model.rope.style = RopeConfig::Style::interleaved;
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

// Published files have no module; the bundled model has one, as Qwen3-Next has.
void read_qwen3_moe(JsonFields& config, ModelConfig& model) {
  read_qwen3(config, model, {});
  read_qwen3_experts(config, model);
  read_qwen_mtp(config, model);
}

void read_qwen3_vl_moe(JsonFields& config, ModelConfig& model) {
  read_qwen3(config, model, {.three_axes = true, .theta = 5e5});
  read_qwen3_experts(config, model);
  model.moe.norm_topk_prob = true;  // whatever the key says, as in the library
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
  read_mla(config, model, MlaRotation::of_mistral4);
  for (const std::string_view key : {"scoring_func", "topk_method"}) config.text(key, "");
  if (!read_expert_sizes(config, model, {.count = "n_routed_experts"})) return;
  model.moe.group_score = MoeConfig::GroupScore::two_best;
  model.moe.norm_topk_prob = config.flag("norm_topk_prob", {});
  model.moe.stacked = MoeConfig::Stacked::outputs_first;
  read_expert_groups(config, model.moe);
  read_deepseek_layers(config, model);
}

// A wrapper of text models of several kinds; a missing model_type means Mistral's dense one.
void read_mistral3(JsonFields& config, ModelConfig& model) {
  const std::string kind = config.text("model_type", "mistral");
  if (kind == "mistral4") return read_mistral4(config, model);
  config.refuse(unsupported(fmt::format(
      "config.json: text_config: model_type is {}; supported in Mistral3ForConditionalGeneration "
      "is \"mistral4\"",
      shown(kind))));
}

// rotary_dim, the number of rotated dims, is the older form of partial_rotary_factor.
void read_minimax_m2(JsonFields& config, ModelConfig& model) {
  double share = 1;
  if (config.has("rotary_dim")) {
    const int dims = static_cast<int>(config.integer("head_dim", kHeadDim));
    share =
        double(config.integer("rotary_dim", {2, double(std::max(dims, 2))})) / std::max(dims, 2);
  }
  read_gqa(config, model, {.share = share, .theta = 5e6});
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
  read_gqa(config, model, {.theta = 5e5});
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

using Form = HfFamily::Form;

constexpr std::array<HfFamily, 29> kFamilies = {
    {{"LlamaForCausalLM", read_llama},
     {"MistralForCausalLM", read_mistral},
     {"Qwen2ForCausalLM", read_qwen2},
     {"Qwen3ForCausalLM", read_qwen3_dense},
     {"Qwen3MoeForCausalLM", read_qwen3_moe},
     {"DeepseekV2ForCausalLM", read_deepseek_v2},
     {"DeepseekV3ForCausalLM", read_deepseek_v3},
     {"Glm4MoeForCausalLM", read_glm4_moe},
     {"Glm4MoeLiteForCausalLM", read_deepseek_v3},
     {"KimiK25ForConditionalGeneration", read_deepseek_v3, Form::wrapped_with_head},
     {"Qwen3VLMoeForConditionalGeneration", read_qwen3_vl_moe, Form::wrapped},
     {"MiniMaxM2ForCausalLM", read_minimax_m2},
     {"Ernie4_5_MoeForCausalLM", read_ernie4_5_moe, Form::flat, {.eps = 1e-5, .tied = true}},
     {"Mistral4ForCausalLM", read_mistral4},
     {"Mistral3ForConditionalGeneration", read_mistral3, Form::wrapped},
     {"MiMoV2FlashForCausalLM", read_mimo_v2, Form::flat, {.eps = 1e-5}},
     {"GptOssForCausalLM", read_gpt_oss, Form::flat, {.eps = 1e-5}},
     {"Llama4ForCausalLM", read_llama4, Form::flat, {.eps = 1e-5}},
     {"Llama4ForConditionalGeneration", read_llama4, Form::wrapped_with_head, {.eps = 1e-5}},
     {"Step3p5ForCausalLM", read_step3p5, Form::flat, {.eps = 1e-5}},
     {"Step3p7ForConditionalGeneration", read_step3p5, Form::wrapped, {.eps = 1e-5}},
     {"Gemma4ForCausalLM", read_gemma4, Form::flat, {.tied = true}},
     {"Gemma4ForConditionalGeneration", read_gemma4, Form::wrapped, {.tied = true}},
     {"KimiLinearForCausalLM", read_kimi_linear, Form::flat, {.eps = std::nullopt}},
     {"Qwen3NextForCausalLM", read_qwen3_next},
     {"Qwen3_5ForCausalLM", read_qwen3_5},
     {"Qwen3_5ForConditionalGeneration", read_qwen3_5, Form::wrapped},
     {"Qwen3_5MoeForCausalLM", read_qwen3_5_moe},
     {"Qwen3_5MoeForConditionalGeneration", read_qwen3_5_moe, Form::wrapped}}};

}  // namespace

std::span<const HfFamily> hf_families() {
  return kFamilies;
}

Error unsupported(const std::string& message) {
  return error(ErrorCode::unsupported_model, "{}", message)
      .with_fix("choose a model whose config.json has a supported value there");
}

}  // namespace hocket
