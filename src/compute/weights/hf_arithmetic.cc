#include "compute/weights/hf_arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "compute/weights/hf_families.h"

namespace hocket {
namespace {

// Keys that change the arithmetic of a model if the family's function does not read them, and the
// values (as JSON) that change nothing.
struct ArithmeticKey {
  std::string_view key;
  std::vector<std::string_view> neutral;
};
const std::vector<ArithmeticKey>& arithmetic_keys() {
  static const std::vector<ArithmeticKey> keys = {
      {"text_config", {}},
      {"vision_config", {}},
      {"audio_config", {}},
      {"hidden_act", {"\"silu\"", "\"swish\""}},
      {"use_sliding_window", {"false"}},
      {"attention_bias", {"false"}},
      {"qkv_bias", {"false"}},
      {"mlp_bias", {"false"}},
      {"use_bias", {"false"}},
      {"lm_head_bias", {"false"}},
      {"attn_output_gate", {"false"}},
      {"attn_logit_softcapping", {"0"}},
      {"final_logit_softcapping", {"0"}},
      {"attention_multiplier", {}},
      {"attention_value_scale", {"1"}},
      {"query_pre_attn_scalar", {}},
      {"embedding_multiplier", {"1"}},
      {"residual_multiplier", {"1"}},
      {"logits_scaling", {"1"}},
      {"logit_scale", {"1"}},
      {"scale_emb", {"1"}},
      {"scale_depth", {"1"}},
      {"swiglu_limit", {}},
      {"swiglu_alpha", {}},
      {"zero_centered", {"false"}},
      {"attn_res_block_size", {"0"}},
      {"mla_use_output_gate", {"false"}},
      {"use_mla_output_gate", {"false"}},
      {"add_full_attention_sink_bias", {"false"}},
      {"add_swa_attention_sink_bias", {"false"}},
      {"hybrid_layer_pattern", {}},
      {"full_attention_interval", {"1"}},
      {"no_rope_layers", {"[]"}},
      {"kv_lora_rank", {"0"}},
      {"q_lora_rank", {"0"}},
      {"linear_num_key_heads", {"0"}},
      {"index_topk", {}},
      {"rope_interleave", {"false"}},
      {"num_experts", {"0"}},
      {"num_local_experts", {"0"}},
      {"n_routed_experts", {"0"}},
      {"n_shared_experts", {"0"}},
      {"num_shared_experts", {"0"}},
      {"shared_expert_intermediate_size", {"0"}},
      {"shared_intermediate_size", {"0"}},
      {"moe_num_experts", {"0"}},
      {"moe_num_shared_experts", {"0"}},
      {"linear_attn_config", {}},
      {"num_expert_group", {"0", "1"}},
      {"per_layer_config", {"{}"}},
      {"routed_scaling_factor", {"1"}},
      {"n_group", {"0", "1"}},
      {"topk_group", {"0", "1"}},
      {"scoring_func", {"\"softmax\""}},
      {"topk_method", {"\"greedy\""}},
      {"use_bidirectional_attention", {"false"}},
      {"use_rope_layers", {"[]"}},
      {"yarn_only_types", {R"(["full_attention"])"}},
  };
  return keys;
}

}  // namespace

void refuse_other_arithmetic(JsonFields& config, const ModelConfig& model) {
  for (const ArithmeticKey& entry : arithmetic_keys()) {
    if (!config.has(entry.key) || config.was_read(entry.key)) continue;
    const std::string value = config.show(entry.key);
    const auto same = [&](std::string_view neutral) {
      return value == neutral || value == std::string(neutral) + ".0";
    };
    if (std::none_of(entry.neutral.begin(), entry.neutral.end(), same))
      config.refuse(unsupported(fmt::format(
          "config.json: {} is {}, which would change the arithmetic and is not supported in {}",
          entry.key, value, model.architecture)));
  }
  for (const std::string_view key : {"use_qk_norm", "qk_norm"})
    if (config.has(key) && !config.was_read(key) && config.flag(key, {}) != model.qk_norm)
      config.refuse(unsupported(fmt::format("config.json: {} is {}, which {} does not have", key,
                                            config.show(key), model.architecture)));
  if (!config.was_read("v_head_dim") &&
      config.integer("v_head_dim", kHeadDim, model.head_dim) != model.head_dim)
    config.refuse(unsupported(fmt::format("config.json: v_head_dim {} differs from head_dim {}",
                                          config.show("v_head_dim"), model.head_dim)));
  if (config.was_read("layer_types")) return;
  const std::vector<std::string> kinds = config.texts("layer_types");
  for (const std::string& kind : kinds)
    if (kind != "full_attention")
      config.refuse(unsupported(fmt::format(
          "config.json: layer_types holds {}; only \"full_attention\" is supported", shown(kind))));
  if (!kinds.empty() && static_cast<int>(kinds.size()) != model.num_layers)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: layer_types has {} entries for {} layers", kinds.size(),
                        model.num_layers));
}

}  // namespace hocket
