// Architectures with layers that see near keys only.
#include <fmt/format.h>

#include <algorithm>

#include "gguf/config_reader.h"

namespace hocket {
namespace {

using Json = nlohmann::json;

// Returns true for each layer that sees near keys only.
std::vector<bool> sliding_layers(GgufConfigReader& reader, const Json& config) {
  const int64_t layers = gguf_num_layers(config);
  const std::vector<double> marks = reader.for_layers("attention.sliding_window_pattern", layers);
  std::vector<bool> sliding;
  for (const double mark : marks) sliding.push_back(mark != 0);
  return sliding;
}

Json layer_types(const std::vector<bool>& sliding) {
  Json kinds = Json::array();
  for (const bool is_sliding : sliding)
    kinds.push_back(is_sliding ? "sliding_attention" : "full_attention");
  return kinds;
}

// The one number that the layers of a kind have.
int64_t of_kind(GgufConfigReader& reader, std::string_view key, const std::vector<bool>& sliding,
                bool kind) {
  const std::vector<double> all = reader.for_layers(key, std::ssize(sliding));
  std::optional<double> found;
  for (size_t i = 0; i < all.size(); ++i) {
    if (sliding[i] != kind) continue;
    if (found && *found != all[i])
      reader.refuse_unsupported(
          fmt::format("{} differs among layers of one kind, which is not supported", key));
    found = all[i];
  }
  constexpr double kMax = 1 << 20;
  return found && *found >= 0 && *found <= kMax ? static_cast<int64_t>(*found) : 0;
}

// Returns true if the first layer of a kind has the tensor.
bool kind_has(const GgufConfigReader& reader, std::string_view tensor,
              const std::vector<bool>& sliding, bool kind) {
  const auto first = std::ranges::find(sliding, kind);
  return first != sliding.end() &&
         reader.has_tensor(fmt::format("blk.{}.{}", first - sliding.begin(), tensor));
}

// Files of the first converter lack the factor of values of MiMo-V2-Flash, which is known by its
// sizes; other files lack it where their folders have none. llama.cpp writes 0 for none.
double value_scale(GgufConfigReader& reader, const Json& config) {
  constexpr double kOfFlash = 0.707;
  constexpr int64_t kExperts = 256, kLayers = 48, kVocab = 152576;
  constexpr std::string_view kKey = "attention.value_scale";
  if (const auto scale = reader.number(kKey)) return *scale == 0 ? 1 : *scale;
  const bool is_flash = config["n_routed_experts"] == kExperts &&
                        config["num_hidden_layers"] == kLayers && config["vocab_size"] == kVocab;
  if (is_flash)
    reader.assume(kKey, fmt::format("{}", kOfFlash),
                  "experts, layers and vocabulary are those of MiMo-V2-Flash");
  else
    reader.assume(kKey, "1", "the model is not MiMo-V2-Flash, whose files may lack it");
  return is_flash ? kOfFlash : 1;
}

}  // namespace

void read_gguf_gpt_oss(GgufConfigReader& reader, Json& config) {
  read_gguf_heads(reader, config);
  state_gguf_rope_scaling(config);
  config["num_local_experts"] = reader.required("expert_count");
  config["num_experts_per_tok"] = reader.required("expert_used_count");
  config["intermediate_size"] = reader.required("expert_feed_forward_length");
  config["sliding_window"] = reader.required("attention.sliding_window");
  config["attention_bias"] = true;
  Json& kinds = config["layer_types"] = Json::array();
  for (int64_t i = 0; i < gguf_num_layers(config); ++i)
    kinds.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
}

// Chunks and the scale of queries are not in the files that llama.cpp makes: they are those of the
// published models.
void read_gguf_llama4(GgufConfigReader& reader, Json& config) {
  constexpr int64_t kChunk = 8192, kUnnormedExperts = 128;
  read_gguf_heads(reader, config);
  config["intermediate_size_mlp"] = reader.required("feed_forward_length");
  config["intermediate_size"] = reader.required("expert_feed_forward_length");
  config["num_local_experts"] = reader.required("expert_count");
  config["num_experts_per_tok"] = reader.required("expert_used_count");
  config["interleave_moe_layer_step"] = reader.required("interleave_moe_layer_step");
  config["use_qk_norm"] = config["num_local_experts"] != kUnnormedExperts;
  config["attention_chunk_size"] = reader.integer("attention.sliding_window").value_or(kChunk);
  config["floor_scale"] = reader.integer("attention.temperature_length").value_or(kChunk);
  config["attn_scale"] = reader.number("attention.temperature_scale").value_or(0.1);
  if (config["attention_chunk_size"] == 0)
    reader.refuse_unsupported("llama4 without chunks is not supported");
}

void read_gguf_mimo2(GgufConfigReader& reader, Json& config) {
  const std::vector<bool> sliding = sliding_layers(reader, config);
  const auto kv_heads = [&](bool kind) {
    return of_kind(reader, "attention.head_count_kv", sliding, kind);
  };
  config["layer_types"] = layer_types(sliding);
  // The converter writes sliding_window; folders also have sliding_window_size, which counts, with
  // the same number. Under that name a query sees its own key besides.
  config["sliding_window_size"] = reader.required("attention.sliding_window");
  config["num_key_value_heads"] = kv_heads(false);
  config["swa_num_key_value_heads"] = kv_heads(true);
  config["head_dim"] = config["swa_head_dim"] = reader.required("attention.key_length");
  config["v_head_dim"] = config["swa_v_head_dim"] = reader.required("attention.value_length");
  config["partial_rotary_factor"] =
      gguf_share(reader.required("rope.dimension_count"), config["head_dim"].get<int64_t>());
  config["swa_rope_theta"] = reader.number("rope.freq_base_swa").value_or(10000);
  config["add_full_attention_sink_bias"] = kind_has(reader, "attn_sinks.weight", sliding, false);
  config["add_swa_attention_sink_bias"] = kind_has(reader, "attn_sinks.weight", sliding, true);
  config["n_routed_experts"] = reader.required("expert_count");
  config["attention_value_scale"] = value_scale(reader, config);
  config["num_experts_per_tok"] = reader.required("expert_used_count");
  config["moe_intermediate_size"] = reader.required("expert_feed_forward_length");
  config["n_group"] = reader.integer("expert_group_count").value_or(1);
  config["topk_group"] = reader.integer("expert_group_used_count").value_or(1);
  config["routed_scaling_factor"] = reader.number("expert_weights_scale").value_or(1);
  config["scoring_func"] = "sigmoid";
  config["topk_method"] = "noaux_tc";
  config["num_nextn_predict_layers"] = 0;
  Json& kinds = config["mlp_layer_types"] = Json::array();
  for (const bool has_experts : gguf_moe_layers(reader, config))
    kinds.push_back(has_experts ? "sparse" : "dense");
}

// Half of a head turns in layers that see all keys, and their angles alone are divided.
void read_gguf_step35(GgufConfigReader& reader, Json& config) {
  const std::vector<bool> sliding = sliding_layers(reader, config);
  const auto heads = [&](std::string_view key, bool kind) {
    return of_kind(reader, key, sliding, kind);
  };
  const int64_t dims = reader.required("attention.key_length");
  config["layer_types"] = layer_types(sliding);
  config["head_dim"] = dims;
  config["num_attention_heads"] = heads("attention.head_count", false);
  config["num_attention_groups"] = heads("attention.head_count_kv", false);
  config["attention_other_setting"] = {
      {"num_attention_heads", heads("attention.head_count", true)},
      {"num_attention_groups", heads("attention.head_count_kv", true)},
      {"head_dim", dims}};
  config["sliding_window"] = reader.required("attention.sliding_window");
  config["use_head_wise_attn_gate"] = reader.has_tensor("blk.0.attn_gate.weight");
  Json thetas = Json::array(), shares = Json::array();
  for (const bool near : sliding) {
    thetas.push_back(near ? reader.number("rope.freq_base_swa").value_or(10000)
                          : config["rope_theta"].get<double>());
    shares.push_back(near ? 1 : 0.5);
  }
  config["rope_theta"] = std::move(thetas);
  config["partial_rotary_factors"] = std::move(shares);
  const auto pairs = static_cast<size_t>(std::clamp<int64_t>(dims, 0, 1 << 16)) / 4;
  if (config.contains("rope_scaling"))
    config["rope_scaling"]["divisors"] = gguf_divisors(reader, pairs);
  config["moe_num_experts"] = reader.required("expert_count");
  config["moe_top_k"] = reader.required("expert_used_count");
  config["moe_intermediate_size"] = reader.required("expert_feed_forward_length");
  config["share_expert_dim"] = reader.required("expert_shared_feed_forward_length");
  config["norm_expert_weight"] = reader.flag("expert_weights_norm").value_or(true);
  config["moe_router_scaling_factor"] = reader.number("expert_weights_scale").value_or(1);
  std::string listed;
  const std::vector<bool> has_experts = gguf_moe_layers(reader, config);
  for (size_t i = 0; i < has_experts.size(); ++i)
    if (has_experts[i]) listed += fmt::format("{}{}", listed.empty() ? "" : ",", i);
  config["moe_layers_enum"] = listed;
  config["use_moe_router_bias"] = kind_has(reader, "exp_probs_b.bias", has_experts, true);
  for (const auto& [key, folder] : {std::pair("swiglu_clamp_exp", "swiglu_limits"),
                                    std::pair("swiglu_clamp_shexp", "swiglu_limits_shared")})
    if (reader.has(key)) config[folder] = reader.for_layers(key, gguf_num_layers(config));
}

// In layers that see all keys, divisors other than 1 stand for pairs that do not turn.
void read_gguf_gemma4(GgufConfigReader& reader, Json& config) {
  const std::vector<bool> sliding = sliding_layers(reader, config);
  const auto kv_heads = [&](bool kind) {
    return of_kind(reader, "attention.head_count_kv", sliding, kind);
  };
  config["layer_types"] = layer_types(sliding);
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["sliding_window"] = reader.required("attention.sliding_window");
  config["head_dim"] = reader.required("attention.key_length_swa");
  config["global_head_dim"] = reader.required("attention.key_length");
  config["num_key_value_heads"] = kv_heads(true);
  config["num_global_key_value_heads"] = kv_heads(false);
  config["attention_k_eq_v"] = !kind_has(reader, "attn_v.weight", sliding, false) &&
                               !kind_has(reader, "attn_qkv.weight", sliding, false);
  config["hidden_size_per_layer_input"] =
      reader.integer("embedding_length_per_layer_input").value_or(0);
  config["num_kv_shared_layers"] = reader.integer("attention.shared_kv_layers").value_or(0);
  config["final_logit_softcapping"] = reader.number("final_logit_softcapping").value_or(0);
  const std::vector<double> divisors = gguf_divisors(reader, SIZE_MAX);
  Json& ropes = config["rope_parameters"] = Json::object();
  ropes["full_attention"] = {{"rope_type", "proportional"}, {"rope_theta", config["rope_theta"]}};
  if (!divisors.empty())
    ropes["full_attention"]["partial_rotary_factor"] =
        gguf_share(2 * std::ranges::count(divisors, 1.0), 2 * std::ssize(divisors));
  ropes["sliding_attention"] = {
      {"rope_type", "default"},
      {"rope_theta", reader.number("rope.freq_base_swa").value_or(10000)}};
  config.erase("rope_theta");
  config.erase("rope_scaling");
  config["enable_moe_block"] = reader.has("expert_count");
  config["num_experts"] = reader.integer("expert_count").value_or(0);
  config["top_k_experts"] = reader.integer("expert_used_count").value_or(0);
  config["moe_intermediate_size"] = reader.integer("expert_feed_forward_length").value_or(0);
  // The factor of the embedding has the precision of the folder's numbers.
  if (reader.file().find("token_embd.weight").tensor->type->id == GgufTypeId::f32)
    config["dtype"] = "float32";
}

}  // namespace hocket
