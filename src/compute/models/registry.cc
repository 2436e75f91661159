#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "compute/models/decoder_weights.h"
#include "compute/models/family.h"

namespace hocket {
namespace {

// The names of a text model inside another model.
constexpr TensorNames nested(TensorNames names, std::string_view model,
                             std::string_view head = "lm_head.weight") {
  names.model = model;
  names.head = head;
  return names;
}
constexpr std::string_view kTextModel = "model.language_model.";
constexpr std::string_view kInnerModel = "language_model.model.";
constexpr std::string_view kInnerHead = "language_model.lm_head.weight";

constexpr TensorNames kQwen3Next = {.shared = "mlp.shared_expert."};

constexpr TensorNames kLlama4 = {.dense = "feed_forward.",
                                 .moe = "feed_forward.",
                                 .router = "router.weight",
                                 .shared = "feed_forward.shared_expert."};
constexpr TensorNames kMiniMaxM2 = {.moe = "block_sparse_moe.",
                                    .correction_bias = "e_score_correction_bias",
                                    .gate = "w1",
                                    .up = "w3",
                                    .down = "w2"};
constexpr TensorNames kKimiLinear = {.moe = "block_sparse_moe.",
                                     .gate = "w1",
                                     .up = "w3",
                                     .down = "w2",
                                     .shared = "block_sparse_moe.shared_experts."};
constexpr TensorNames kGemma4 = {.moe = "", .router = "router.proj.weight", .shared = "mlp."};
constexpr TensorNames kStep3p5 = {
    .moe = "moe.", .correction_bias = "router_bias", .shared = "share_expert."};

constexpr MtpNames kLayersBehind = {};
constexpr MtpNames kQwenMtp = {.model = "mtp.",
                               .in_layer = false,
                               .embedding_norm = "pre_fc_norm_embedding.weight",
                               .hidden_norm = "pre_fc_norm_hidden.weight",
                               .projection = "fc.weight",
                               .final_norm = "norm.weight"};
constexpr MtpNames kMimoMtp = {.model = "model.mtp.",
                               .final_norm = "final_layernorm.weight",
                               .mlp_norm = "pre_mlp_layernorm.weight"};

constexpr std::array<ModelFamily, 29> kFamilies = {{
    {"LlamaForCausalLM", load_decoder_layer},
    {"MistralForCausalLM", load_decoder_layer},
    {"Qwen2ForCausalLM", load_decoder_layer},
    {"Qwen3ForCausalLM", load_decoder_layer},
    {"Qwen3MoeForCausalLM", load_decoder_layer, {}, &kQwenMtp},
    {"DeepseekV2ForCausalLM", load_decoder_layer, {}, &kLayersBehind},
    {"DeepseekV3ForCausalLM", load_decoder_layer, {}, &kLayersBehind},
    {"Glm4MoeForCausalLM", load_decoder_layer, {}, &kLayersBehind},
    {"Glm4MoeLiteForCausalLM", load_decoder_layer, {}, &kLayersBehind},
    {"KimiK25ForConditionalGeneration", load_decoder_layer, nested({}, kInnerModel, kInnerHead),
     &kLayersBehind},
    {"Qwen3VLMoeForConditionalGeneration", load_decoder_layer, nested({}, kTextModel)},
    {"Mistral4ForCausalLM", load_decoder_layer},
    {"Mistral3ForConditionalGeneration", load_decoder_layer, nested({}, kInnerModel, kInnerHead)},
    {"MiniMaxM2ForCausalLM", load_decoder_layer, kMiniMaxM2},
    {"Ernie4_5_MoeForCausalLM",
     load_decoder_layer,
     {.correction_bias = "moe_statics.e_score_correction_bias"}},
    {"MiMoV2FlashForCausalLM", load_decoder_layer, {.sinks = "attention_sink_bias"}, &kMimoMtp},
    {"GptOssForCausalLM", load_decoder_layer, {.router = "router.weight"}},
    {"Llama4ForCausalLM", load_decoder_layer, kLlama4},
    {"Llama4ForConditionalGeneration", load_decoder_layer,
     nested(kLlama4, kInnerModel, kInnerHead)},
    {"Step3p5ForCausalLM", load_decoder_layer, kStep3p5, nullptr, true},
    {"Step3p7ForConditionalGeneration", load_decoder_layer, kStep3p5, nullptr, true},
    {"Gemma4ForCausalLM", load_decoder_layer, kGemma4},
    {"Gemma4ForConditionalGeneration", load_decoder_layer, nested(kGemma4, kTextModel)},
    {"KimiLinearForCausalLM", load_decoder_layer, kKimiLinear},
    {"Qwen3NextForCausalLM", load_decoder_layer, kQwen3Next, &kQwenMtp},
    {"Qwen3_5ForCausalLM", load_decoder_layer, {}, &kQwenMtp},
    {"Qwen3_5ForConditionalGeneration", load_decoder_layer, nested(kQwen3Next, kTextModel),
     &kQwenMtp},
    {"Qwen3_5MoeForCausalLM", load_decoder_layer, kQwen3Next, &kQwenMtp},
    {"Qwen3_5MoeForConditionalGeneration", load_decoder_layer, nested(kQwen3Next, kTextModel),
     &kQwenMtp},
}};

}  // namespace

std::vector<int> all_experts(const ModelConfig& model) {
  std::vector<int> ids(model.moe.num_experts);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Result<const ModelFamily*> find_family(std::string_view architecture) {
  const auto found = std::ranges::find(kFamilies, architecture, &ModelFamily::architecture);
  if (found == kFamilies.end())
    return fail(ErrorCode::unsupported_model, "no model family for architecture {}", architecture);
  return found;
}

bool is_passed_over(const ModelConfig& model, std::string_view tensor) {
  for (const std::string_view end :
       {".inv_freq", ".input_scale", ".input_global_scale", "activation_scale", ".k_scale",
        ".v_scale", ".q_scale", ".output_scale"})
    if (tensor.ends_with(end)) return true;
  const Result<const ModelFamily*> found = find_family(model.architecture);
  if (!found) return false;
  const ModelFamily& family = **found;
  const bool in_text = tensor.starts_with(family.names.model);
  if (!in_text && tensor != family.names.head && !model.left_aside.empty()) return true;
  if (family.mtp == nullptr && !family.has_layers_behind) return false;
  if (family.mtp != nullptr && !family.mtp->model.empty())
    return tensor.starts_with(family.mtp->model);
  const std::string layers = std::string(family.names.model) + "layers.";
  int layer = -1;
  if (tensor.starts_with(layers))
    std::from_chars(tensor.data() + layers.size(), tensor.data() + tensor.size(), layer);
  return layer >= model.num_layers;
}

bool has_module(const ModelConfig& model) {
  const Result<const ModelFamily*> family = find_family(model.architecture);
  return family && (*family)->mtp != nullptr && model.num_mtp_layers > 0;
}

}  // namespace hocket
