#include <algorithm>
#include <array>
#include <numeric>

#include "compute/models/decoder_weights.h"
#include "compute/models/family.h"

namespace hocket {
namespace {

constexpr TensorNames kQwen3Next = {.shared = "mlp.shared_expert."};
constexpr TensorNames kQwen35 = {.model = "model.language_model.", .shared = "mlp.shared_expert."};

constexpr TensorNames kLlama4 = {.dense = "feed_forward.",
                                 .moe = "feed_forward.",
                                 .router = "router.weight",
                                 .shared = "feed_forward.shared_expert."};
constexpr TensorNames kLlama4Nested = {.model = "language_model.model.",
                                       .head = "language_model.lm_head.weight",
                                       .dense = "feed_forward.",
                                       .moe = "feed_forward.",
                                       .router = "router.weight",
                                       .shared = "feed_forward.shared_expert."};
constexpr TensorNames kStep3p5 = {
    .moe = "moe.", .correction_bias = "router_bias", .shared = "share_expert."};

constexpr std::array<ModelFamily, 25> kFamilies = {{
    {"LlamaForCausalLM", load_decoder_layer},
    {"MistralForCausalLM", load_decoder_layer},
    {"Qwen2ForCausalLM", load_decoder_layer},
    {"Qwen3ForCausalLM", load_decoder_layer},
    {"Qwen3MoeForCausalLM", load_decoder_layer},
    {"DeepseekV2ForCausalLM", load_decoder_layer},
    {"DeepseekV3ForCausalLM", load_decoder_layer},
    {"Glm4MoeForCausalLM", load_decoder_layer},
    {"Glm4MoeLiteForCausalLM", load_decoder_layer},
    {"KimiK25ForConditionalGeneration",
     load_decoder_layer,
     {.model = "language_model.model.", .head = "language_model.lm_head.weight"}},
    {"Qwen3VLMoeForConditionalGeneration", load_decoder_layer, {.model = "model.language_model."}},
    {"Mistral4ForCausalLM", load_decoder_layer},
    {"MiniMaxM2ForCausalLM",
     load_decoder_layer,
     {.moe = "block_sparse_moe.",
      .correction_bias = "e_score_correction_bias",
      .gate = "w1",
      .up = "w3",
      .down = "w2"}},
    {"Ernie4_5_MoeForCausalLM",
     load_decoder_layer,
     {.correction_bias = "moe_statics.e_score_correction_bias"}},
    {"MiMoV2FlashForCausalLM", load_decoder_layer, {.sinks = "attention_sink_bias"}},
    {"GptOssForCausalLM", load_decoder_layer, {.router = "router.weight"}},
    {"Llama4ForCausalLM", load_decoder_layer, kLlama4},
    {"Llama4ForConditionalGeneration", load_decoder_layer, kLlama4Nested},
    {"Step3p5ForCausalLM", load_decoder_layer, kStep3p5},
    {"Step3p7ForConditionalGeneration", load_decoder_layer, kStep3p5},
    {"Qwen3NextForCausalLM", load_decoder_layer, kQwen3Next},
    {"Qwen3_5ForCausalLM", load_decoder_layer},
    {"Qwen3_5ForConditionalGeneration", load_decoder_layer, kQwen35},
    {"Qwen3_5MoeForCausalLM", load_decoder_layer, kQwen3Next},
    {"Qwen3_5MoeForConditionalGeneration", load_decoder_layer, kQwen35},
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

}  // namespace hocket
