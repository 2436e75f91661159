#include "gguf/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "gguf/config_reader.h"

namespace hocket {
namespace {

using Json = nlohmann::json;
using Reader = GgufConfigReader;

void read_divisors(Reader& reader, Json& config) {
  std::vector<double> divisors = gguf_divisors(reader, SIZE_MAX);
  if (divisors.empty()) return;
  config["rope_scaling"]["rope_type"] = "divided";
  config["rope_scaling"]["divisors"] = std::move(divisors);
}

void read_rope(Reader& reader, Json& config) {
  config["rope_theta"] = reader.number("rope.freq_base").value_or(10000);
  read_divisors(reader, config);
  const std::string_view kind = reader.text("rope.scaling.type").value_or("none");
  for (const std::string_view list : {"rope_factors_long.weight", "rope_factors_short.weight"})
    if (reader.has_tensor(list))
      return reader.refuse_unsupported(fmt::format("rope scaling by {} is not supported", list));
  if (kind == "none") return;
  if (kind != "linear" && kind != "yarn")
    return reader.refuse_unsupported(
        fmt::format("rope scaling of type {} is not supported; supported are linear and yarn",
                    quoted_ascii(kind)));
  Json& scaling = config["rope_scaling"];
  scaling["rope_type"] = kind;
  scaling["factor"] = reader.number("rope.scaling.factor").value_or(1);
  if (kind == "linear") return;
  if (const auto context = reader.integer("rope.scaling.original_context_length"))
    scaling["original_max_position_embeddings"] = *context;
  if (const auto fast = reader.number("rope.scaling.yarn_beta_fast")) scaling["beta_fast"] = *fast;
  if (const auto slow = reader.number("rope.scaling.yarn_beta_slow")) scaling["beta_slow"] = *slow;
  if (reader.architecture() == "gpt-oss") scaling["truncate"] = false;
  if (const auto multiplier = reader.number("rope.scaling.yarn_log_multiplier"))
    scaling["mscale"] = scaling["mscale_all_dim"] =
        gguf_decimal(static_cast<float>(*multiplier * 10));
}

// Tokens that end a message in some family. Many files name one of theirs only.
constexpr std::string_view kEnds[] = {
    "<|eot_id|>",    "<|eom_id|>",    "<|im_end|>", "<|end|>", "<|return|>",
    "<|call|>",      "<end_of_turn>", "<turn|>",    "<eos>",   "<|tool_response>",
    "<|endoftext|>", "<EOT>",         "[EOT]",      "[EOS]",   "<|end_of_text|>",
};

// Returns the first tokens that are one of kEnds, by their text.
std::map<std::string_view, int64_t> ends_by_text(const GgufMetadata& metadata, int64_t vocab) {
  constexpr double kControl = 3;
  const auto tokens = metadata.texts("tokenizer.ggml.tokens");
  const auto kinds = metadata.numbers("tokenizer.ggml.token_type");
  std::map<std::string_view, int64_t> found;
  if (!tokens || !kinds) return found;
  const size_t count = std::min({tokens->size(), kinds->size(), static_cast<size_t>(vocab)});
  for (size_t id = 0; id < count; ++id)
    if ((*kinds)[id] == kControl && std::ranges::find(kEnds, (*tokens)[id]) != std::end(kEnds))
      found.emplace((*tokens)[id], id);
  return found;
}

// Tokens that end an answer.
std::vector<int64_t> end_ids(const GgufMetadata& metadata, int64_t vocab) {
  auto by_text = ends_by_text(metadata, vocab);
  // With channels, a message that is not the last one ends with <|end|>.
  if (by_text.contains("<|return|>") && by_text.contains("<|call|>")) by_text.erase("<|end|>");
  std::set<int64_t> ids;
  for (const auto& [text, id] : by_text) ids.insert(id);
  for (const std::string_view name : {"eos", "eot", "eom"})
    if (const auto id = metadata.integer(fmt::format("tokenizer.ggml.{}_token_id", name)))
      ids.insert(*id);
  return {ids.begin(), ids.end()};
}

void read_common(Reader& reader, Json& config) {
  const GgufFile::TensorData embedding = reader.file().find("token_embd.weight");
  if (embedding.tensor == nullptr || embedding.tensor->shape.size() != 2)
    return reader.refuse(error(ErrorCode::bad_gguf, "the file holds no matrix token_embd.weight")
                             .with_fix("name the file of the language model"));
  config["vocab_size"] = embedding.tensor->shape[0];
  config["hidden_size"] = reader.required("embedding_length");
  const int64_t modules = reader.integer("nextn_predict_layers").value_or(0);
  config["num_hidden_layers"] = reader.required("block_count") - modules;
  if (reader.architecture() != "step35")  // where they differ among layers
    config["num_attention_heads"] = reader.required("attention.head_count");
  config["max_position_embeddings"] = reader.required("context_length");
  config["rms_norm_eps"] = reader.number("attention.layer_norm_rms_epsilon").value_or(1e-6);
  config["tie_word_embeddings"] = !reader.has_tensor("output.weight");
  if (const auto width = reader.integer("feed_forward_length"))
    config["intermediate_size"] = *width;
  const GgufMetadata& metadata = reader.file().metadata();
  config["eos_token_id"] = end_ids(metadata, embedding.tensor->shape[0]);
  if (const auto id = metadata.integer("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = *id;
  read_rope(reader, config);
}

// The share of a head's dims that are rotated; the reader of the configuration rounds their number
// down.
void read_rotated_share(Reader& reader, Json& config) {
  const auto rotated = reader.integer("rope.dimension_count");
  if (!rotated || !config.contains("head_dim")) return;
  const auto dims = config["head_dim"].get<int64_t>();
  if (dims > 0) config["partial_rotary_factor"] = gguf_share(*rotated, dims);
}

// Biases of q, k and v, and that of the output, where all layers have them or none.
void read_biases(Reader& reader, Json& config) {
  config["attention_bias"] = reader.has_tensor("blk.0.attn_q.bias");
}

void read_llama(Reader& reader, Json& config) {
  read_gguf_heads(reader, config);
  if (reader.integer("expert_count").value_or(0) > 0)
    reader.refuse_unsupported("architecture llama with experts (Mixtral) is not supported");
  config["rope_interleave"] = true;  // the converter changed the order of the rows of q and k
  read_biases(reader, config);
}

void read_qwen(Reader& reader, Json& config) {
  read_gguf_heads(reader, config);
  if (reader.architecture() != "qwen2") read_biases(reader, config);
}

void read_dense_layers(Reader& reader, Json& config) {
  Json& dense = config["mlp_only_layers"] = Json::array();
  const std::vector<bool> has_experts = gguf_moe_layers(reader, config);
  for (size_t i = 0; i < has_experts.size(); ++i)
    if (!has_experts[i]) dense.push_back(i);
}

void read_qwen3moe(Reader& reader, Json& config) {
  read_qwen(reader, config);
  config["num_experts"] = reader.required("expert_count");
  config["num_experts_per_tok"] = reader.required("expert_used_count");
  config["moe_intermediate_size"] = reader.required("expert_feed_forward_length");
  config["norm_topk_prob"] = reader.flag("expert_weights_norm").value_or(true);
  read_dense_layers(reader, config);
}

// Reads experts by the keys of DeepSeek.
void read_deepseek_experts(Reader& reader, Json& config, bool sigmoid) {
  config["n_routed_experts"] = reader.required("expert_count");
  config["num_experts_per_tok"] = reader.required("expert_used_count");
  config["moe_intermediate_size"] = reader.required("expert_feed_forward_length");
  config["n_shared_experts"] = reader.integer("expert_shared_count").value_or(0);
  config["first_k_dense_replace"] = reader.integer("leading_dense_block_count").value_or(0);
  config["routed_scaling_factor"] = reader.number("expert_weights_scale").value_or(1);
  config["norm_topk_prob"] = reader.flag("expert_weights_norm").value_or(false);
  const int64_t groups = reader.integer("expert_group_count").value_or(1);
  config["scoring_func"] = sigmoid ? "sigmoid" : "softmax";
  config["topk_method"] = sigmoid ? "noaux_tc" : groups > 1 ? "group_limited_greedy" : "greedy";
  config["n_group"] = groups;
  config["topk_group"] = reader.integer("expert_group_used_count").value_or(1);
  config["num_nextn_predict_layers"] = reader.integer("nextn_predict_layers").value_or(0);
}

// GLM-4.7-Flash has sigmoid scores, which its first files do not say.
bool has_sigmoid_scores(Reader& reader, const Json& config) {
  constexpr int64_t kSigmoid = 2, kFlashVocab = 154880;
  const auto function = reader.integer("expert_gating_func").value_or(0);
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  return function == kSigmoid ||
         (function == 0 && (layers == 47 || layers == 48) && config["vocab_size"] == kFlashVocab);
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

void read_deepseek2(Reader& reader, Json& config) {
  const bool sigmoid = has_sigmoid_scores(reader, config);
  config["architectures"] =
      Json::array({sigmoid ? "DeepseekV3ForCausalLM" : "DeepseekV2ForCausalLM"});
  read_latents(reader, config);
  read_deepseek_experts(reader, config, sigmoid);
  if (reader.number("attention.temperature_scale").value_or(0) != 0)
    reader.refuse_unsupported("queries scaled by their position are not supported in deepseek2");
}

// Files made of Hugging Face folders lack the scale of queries; published folders have this one.
void read_mistral4(Reader& reader, Json& config) {
  constexpr double kBeta = 0.1;
  read_latents(reader, config);
  read_deepseek_experts(reader, config, false);
  if (config.contains("rope_scaling") && config["rope_scaling"]["rope_type"] == "yarn")
    config["rope_scaling"]["llama_4_scaling_beta"] =
        reader.number("attention.temperature_scale").value_or(kBeta);
}

// Reads a model that has experts behind its first layers, in every interleave_moe_layer_step-th.
void read_ernie(Reader& reader, Json& config) {
  read_gguf_heads(reader, config);
  config["moe_num_experts"] = reader.required("expert_count");
  config["moe_k"] = reader.required("expert_used_count");
  config["moe_intermediate_size"] = reader.required("expert_feed_forward_length");
  config["moe_num_shared_experts"] = reader.integer("expert_shared_count").value_or(0);
  config["moe_layer_interval"] = reader.integer("interleave_moe_layer_step").value_or(1);
  config["moe_layer_start_index"] = reader.integer("leading_dense_block_count").value_or(0);
}

void read_glm4moe(Reader& reader, Json& config) {
  read_gguf_heads(reader, config);
  read_rotated_share(reader, config);
  read_biases(reader, config);
  config["use_qk_norm"] = reader.has_tensor("blk.0.attn_q_norm.weight");
  read_deepseek_experts(reader, config, true);
}

void read_minimax_m2(Reader& reader, Json& config) {
  read_gguf_heads(reader, config);
  config["num_local_experts"] = reader.required("expert_count");
  config["num_experts_per_tok"] = reader.required("expert_used_count");
  config["intermediate_size"] = reader.has("expert_feed_forward_length")
                                    ? reader.required("expert_feed_forward_length")
                                    : reader.required("feed_forward_length");
  config["rotary_dim"] = reader.required("rope.dimension_count");
  config["scoring_func"] = "sigmoid";
  config["use_qk_norm"] = reader.has_tensor("blk.0.attn_q_norm.weight");
}

// Reads a model with delta nets beside gated attention. A layer without heads of keys is linear.
void read_hybrid(Reader& reader, Json& config) {
  const GgufMetadata& metadata = reader.file().metadata();
  const std::string key = reader.architecture() + ".attention.head_count_kv";
  const int64_t layers = gguf_num_layers(config);
  const int64_t interval =
      std::max<int64_t>(reader.integer("full_attention_interval").value_or(4), 1);
  std::vector<double> kv_heads = metadata.numbers(key).value_or(std::vector<double>{});
  kv_heads.resize(static_cast<size_t>(layers), 0);
  const bool listed = metadata.numbers(key).has_value();
  if (!listed)
    for (int64_t i = interval - 1; i < layers; i += interval)
      kv_heads[i] = metadata.number(key).value_or(0);
  Json& kinds = config["layer_types"] = Json::array();
  int64_t most = 0;
  for (const double heads : kv_heads) {
    kinds.push_back(heads > 0 ? "full_attention" : "linear_attention");
    most = std::max(most, static_cast<int64_t>(std::clamp(heads, 0.0, 1e6)));
  }
  config["num_key_value_heads"] = most;
  config["head_dim"] = reader.required("attention.key_length");
  read_rotated_share(reader, config);
  const int64_t value_heads = std::max<int64_t>(reader.required("ssm.time_step_rank"), 1);
  config["linear_num_key_heads"] = reader.required("ssm.group_count");
  config["linear_num_value_heads"] = value_heads;
  config["linear_key_head_dim"] = reader.required("ssm.state_size");
  config["linear_value_head_dim"] = reader.required("ssm.inner_size") / value_heads;
  config["linear_conv_kernel_dim"] = reader.required("ssm.conv_kernel");
  config["mtp_num_hidden_layers"] = reader.integer("nextn_predict_layers").value_or(0);
  if (reader.architecture() == "qwen35") return;
  if (reader.architecture() == "qwen3next") read_dense_layers(reader, config);
  config["num_experts"] = reader.required("expert_count");
  config["num_experts_per_tok"] = reader.required("expert_used_count");
  config["moe_intermediate_size"] = reader.required("expert_feed_forward_length");
  config["shared_expert_intermediate_size"] = reader.required("expert_shared_feed_forward_length");
}

// Reads a model with delta nets beside latent attention without rotation. Layers without heads of
// keys are linear.
void read_kimi_linear(Reader& reader, Json& config) {
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

struct Architecture {
  std::string_view name, folder;  // in GGUF; in config.json, empty: the reader sets it
  void (*read)(Reader& reader, Json& config);
};
constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", read_llama},
    {"llama4", "Llama4ForCausalLM", read_gguf_llama4},
    {"qwen2", "Qwen2ForCausalLM", read_qwen},
    {"qwen3", "Qwen3ForCausalLM", read_qwen},
    {"qwen3moe", "Qwen3MoeForCausalLM", read_qwen3moe},
    {"qwen3vl", "Qwen3ForCausalLM", read_qwen},
    {"qwen3vlmoe", "Qwen3MoeForCausalLM", read_qwen3moe},
    {"deepseek2", "", read_deepseek2},
    {"mistral4", "Mistral4ForCausalLM", read_mistral4},
    {"glm4moe", "Glm4MoeForCausalLM", read_glm4moe},
    {"ernie4_5-moe", "Ernie4_5_MoeForCausalLM", read_ernie},
    {"gpt-oss", "GptOssForCausalLM", read_gguf_gpt_oss},
    {"minimax-m2", "MiniMaxM2ForCausalLM", read_minimax_m2},
    {"mimo2", "MiMoV2FlashForCausalLM", read_gguf_mimo2},
    {"step35", "Step3p5ForCausalLM", read_gguf_step35},
    {"gemma4", "Gemma4ForCausalLM", read_gguf_gemma4},
    {"kimi-linear", "KimiLinearForCausalLM", read_kimi_linear},
    {"qwen3next", "Qwen3NextForCausalLM", read_hybrid},
    {"qwen35", "Qwen3_5ForCausalLM", read_hybrid},
    {"qwen35moe", "Qwen3_5MoeForCausalLM", read_hybrid},
};

}  // namespace

std::string gguf_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& each : kArchitectures) names.push_back(each.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<std::string> gguf_config_json(const GgufFile& file) {
  Reader reader(file);
  const auto* const found =
      std::ranges::find(kArchitectures, reader.architecture(), &Architecture::name);
  if (found == std::end(kArchitectures))
    return fail(error(ErrorCode::unsupported_model,
                      "{}: the architecture {} is not supported in GGUF; supported are {}",
                      file.path().string(), quoted_ascii(reader.architecture()),
                      gguf_architectures())
                    .with_fix("take the model's folder in safetensors, if it is supported"));
  Json config = Json::object();
  config["architectures"] = Json::array({found->folder});
  read_common(reader, config);
  if (!reader.status()) found->read(reader, config);
  if (reader.status()) {
    Error e = *reader.status();
    e.message = file.path().string() + ": " + e.message;
    return fail(std::move(e));
  }
  return config.dump();
}

std::string gguf_generation_json(const GgufFile& file) {
  constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
      {"temp", "temperature"},
      {"top_p", "top_p"},
      {"min_p", "min_p"},
      {"penalty_repeat", "repetition_penalty"}};
  Json json = Json::object();
  for (const auto& [key, folder] : kKeys)
    if (const auto value = file.metadata().number(fmt::format("general.sampling.{}", key)))
      json[folder] = gguf_decimal(*value);
  if (const auto top_k = file.metadata().integer("general.sampling.top_k")) json["top_k"] = *top_k;
  return json.dump();
}

}  // namespace hocket
