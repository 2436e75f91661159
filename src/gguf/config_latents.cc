// Architectures with latent attention.
#include <fmt/format.h>

#include "gguf/config_reader.h"

namespace hocket {
namespace {

using Json = nlohmann::json;
using Reader = GgufConfigReader;

struct ExpertGroups {
  int64_t count = 1, used = 1;
};

// Published models with groups, of which older files say nothing.
struct GroupedModel {
  std::string_view name;
  int64_t experts, layers, vocab;
  bool sigmoid;
  ExpertGroups groups;
};
constexpr GroupedModel kGroupedModels[] = {
    {"DeepSeek-V3", 256, 61, 129280, true, {8, 4}},
    {"DeepSeek-V2", 160, 60, 102400, false, {8, 3}},
};

// Returns the groups of experts, of which the best are searched. Models whose files lack them are
// known by their sizes.
ExpertGroups groups_of(Reader& reader, const Json& config, bool sigmoid) {
  constexpr int64_t kUngrouped = 384, kMaxSurelyUngrouped = 128;  // Kimi K2; smaller models
  constexpr std::string_view kKey = "expert_group_count";
  const auto used = reader.integer("expert_group_used_count");
  if (const auto count = reader.integer(kKey)) return {*count, used.value_or(1)};
  const int64_t experts = config["n_routed_experts"].get<int64_t>();
  if (used || reader.architecture() != "deepseek2" || experts <= kMaxSurelyUngrouped ||
      experts == kUngrouped)
    return {.used = used.value_or(1)};
  for (const GroupedModel& model : kGroupedModels)
    if (experts == model.experts && config["num_hidden_layers"] == model.layers &&
        config["vocab_size"] == model.vocab && sigmoid == model.sigmoid) {
      const auto [count, best] = model.groups;
      reader.assume(kKey, fmt::format("{} groups, of which {} are searched", count, best),
                    fmt::format("experts, layers and vocabulary are those of {}", model.name));
      return model.groups;
    }
  reader.assume(kKey, "1 group",
                fmt::format("no model with {} experts in {} layers is known; if its folder has "
                            "n_group, answers differ from it",
                            experts, config["num_hidden_layers"].get<int64_t>()));
  return {};
}

// GLM-4.7-Flash has sigmoid scores, which its first files do not say.
bool has_sigmoid_scores(Reader& reader, const Json& config) {
  constexpr int64_t kSigmoid = 2, kFlashVocab = 154880;
  const auto function = reader.integer("expert_gating_func").value_or(0);
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  if (function != 0) return function == kSigmoid;
  const bool is_flash = (layers == 47 || layers == 48) && config["vocab_size"] == kFlashVocab;
  if (is_flash)
    reader.assume("expert_gating_func", "sigmoid",
                  "layers and vocabulary are those of GLM-4.7-Flash");
  return is_flash;
}

void read_latents(Reader& reader, Json& config) {
  const int64_t rotated = reader.required("rope.dimension_count");
  const auto length = [&](std::string_view of_head, std::string_view of_all) {
    return reader.has(of_head) ? reader.required(of_head) : reader.required(of_all);
  };
  config["qk_rope_head_dim"] = rotated;
  config["qk_nope_head_dim"] = length("attention.key_length_mla", "attention.key_length") - rotated;
  config["v_head_dim"] = length("attention.value_length_mla", "attention.value_length");
  config["kv_lora_rank"] = reader.required("attention.kv_lora_rank");
  if (const auto rank = reader.integer("attention.q_lora_rank")) config["q_lora_rank"] = *rank;
}

}  // namespace

void read_gguf_deepseek_experts(Reader& reader, Json& config, bool sigmoid) {
  config["n_routed_experts"] = reader.required("expert_count");
  config["num_experts_per_tok"] = reader.required("expert_used_count");
  config["moe_intermediate_size"] = reader.required("expert_feed_forward_length");
  config["n_shared_experts"] = reader.integer("expert_shared_count").value_or(0);
  config["first_k_dense_replace"] = reader.integer("leading_dense_block_count").value_or(0);
  config["routed_scaling_factor"] = reader.number("expert_weights_scale").value_or(1);
  config["norm_topk_prob"] = reader.flag("expert_weights_norm").value_or(false);
  const ExpertGroups groups = groups_of(reader, config, sigmoid);
  config["scoring_func"] = sigmoid ? "sigmoid" : "softmax";
  config["topk_method"] = sigmoid            ? "noaux_tc"
                          : groups.count > 1 ? "group_limited_greedy"
                                             : "greedy";
  config["n_group"] = groups.count;
  config["topk_group"] = groups.used;
  config["num_nextn_predict_layers"] = reader.integer("nextn_predict_layers").value_or(0);
}

void read_gguf_deepseek2(Reader& reader, Json& config) {
  const bool sigmoid = has_sigmoid_scores(reader, config);
  config["architectures"] =
      Json::array({sigmoid ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM"});
  if (!reader.has("expert_count"))
    return reader.refuse_unsupported("architecture deepseek2 without experts is not supported");
  read_latents(reader, config);
  read_gguf_deepseek_experts(reader, config, sigmoid);
  if (reader.number("attention.temperature_scale").value_or(0) != 0)
    reader.refuse_unsupported("queries scaled by their position are not supported in deepseek2");
}

// Files made of Hugging Face folders lack the scale of queries; published folders have this one.
void read_gguf_mistral4(Reader& reader, Json& config) {
  constexpr double kBeta = 0.1;
  read_latents(reader, config);
  read_gguf_deepseek_experts(reader, config, false);
  state_gguf_rope_scaling(config);
  if (config["rope_scaling"]["rope_type"] != "yarn") return;
  const auto beta = reader.number("attention.temperature_scale");
  if (!beta)
    reader.assume("attention.temperature_scale", fmt::format("{}", kBeta),
                  "published models of this architecture have it");
  config["rope_scaling"]["llama_4_scaling_beta"] = beta.value_or(kBeta);
}

// Reads a model with delta nets beside latent attention without rotation. Layers without heads of
// keys are linear.
void read_gguf_kimi_linear(Reader& reader, Json& config) {
  read_latents(reader, config);
  config["mla_use_nope"] = true;
  Json& linear = config["linear_attn_config"] = Json::object();
  linear["num_heads"] = config["num_attention_heads"];
  linear["head_dim"] = reader.required("kda.head_dim");
  linear["short_conv_kernel_size"] = reader.required("ssm.conv_kernel");
  linear["full_attn_layers"] = linear["kda_layers"] = Json::array();
  const std::vector<double> heads =
      reader.for_layers("attention.head_count_kv", gguf_num_layers(config));
  for (size_t i = 0; i < heads.size(); ++i)
    linear[heads[i] > 0 ? "full_attn_layers" : "kda_layers"].push_back(i + 1);
  config["num_experts"] = reader.required("expert_count");
  config["num_experts_per_token"] = reader.required("expert_used_count");
  config["moe_intermediate_size"] = reader.required("expert_feed_forward_length");
  config["num_shared_experts"] = reader.integer("expert_shared_count").value_or(0);
  config["first_k_dense_replace"] = reader.integer("leading_dense_block_count").value_or(0);
  config["routed_scaling_factor"] = reader.number("expert_weights_scale").value_or(1);
  config["moe_renormalize"] = true;
  config["moe_router_activation_func"] = "sigmoid";
  if (reader.flag("kda.safe_gate").value_or(false) || reader.has("kda.gate_lower_bound"))
    reader.refuse_unsupported("a bound of the gate of delta nets is not supported");
}

}  // namespace hocket
