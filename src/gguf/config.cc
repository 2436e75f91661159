#include "gguf/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "gguf/config_reader.h"
#include "gguf/token_kinds.h"

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

// The factor by which positions are divided; older files have it under another name.
double rope_factor(const Reader& reader) {
  const auto factor = reader.number("rope.scaling.factor");
  const double found = factor ? *factor : reader.number("rope.scale_linear").value_or(1);
  return found == 0 ? 1 : found;
}

void read_yarn(Reader& reader, Json& scaling) {
  if (const auto context = reader.integer("rope.scaling.original_context_length"))
    scaling["original_max_position_embeddings"] = *context;
  if (const auto fast = reader.number("rope.scaling.yarn_beta_fast")) scaling["beta_fast"] = *fast;
  if (const auto slow = reader.number("rope.scaling.yarn_beta_slow")) scaling["beta_slow"] = *slow;
  if (reader.architecture() == "gpt-oss") scaling["truncate"] = false;
  if (const auto multiplier = reader.number("rope.scaling.yarn_log_multiplier"))
    scaling["mscale"] = scaling["mscale_all_dim"] =
        gguf_decimal(static_cast<float>(*multiplier * 10));
  // A negative number means that the file does not say, and then the other number is of no meaning.
  const auto extended = reader.number("rope.scaling.yarn_ext_factor");
  if (extended.value_or(1) < 0) return;
  if (extended.value_or(1) != 1)
    reader.refuse_unsupported(fmt::format("yarn_ext_factor {} is not supported", *extended));
  if (const auto factor = reader.number("rope.scaling.yarn_attn_factor"))
    scaling["attention_factor"] = *factor;
}

void read_rope(Reader& reader, Json& config) {
  config["rope_theta"] = reader.number("rope.freq_base").value_or(10000);
  read_divisors(reader, config);
  const double factor = rope_factor(reader);
  const auto said = reader.text("rope.scaling.type");
  const std::string_view kind = said.value_or(factor == 1 ? "none" : "linear");
  for (const std::string_view list : {"rope_factors_long.weight", "rope_factors_short.weight"})
    if (reader.has_tensor(list))
      return reader.refuse_unsupported(fmt::format("rope scaling by {} is not supported", list));
  if (const double sharper = reader.number("rope.scaling.attn_factor").value_or(1); sharper != 1)
    return reader.refuse_unsupported(
        fmt::format("rope scaling with attn_factor {} is not supported", sharper));
  if (kind == "none" || (kind == "linear" && factor == 1)) return;
  if (kind != "linear" && kind != "yarn")
    return reader.refuse_unsupported(
        fmt::format("rope scaling of type {} is not supported; supported are linear and yarn",
                    quoted_ascii(kind)));
  if (reader.has_tensor("rope_freqs.weight"))
    return reader.refuse_unsupported(
        fmt::format("rope scaling of type {} beside rope_freqs.weight is not supported", kind));
  if (!said)
    reader.assume("rope.scaling.type", "linear", fmt::format("the file has the factor {}", factor));
  Json& scaling = config["rope_scaling"];
  scaling["rope_type"] = kind;
  scaling["factor"] = factor;
  if (kind == "yarn") read_yarn(reader, scaling);
}

// Returns the token that the file gives a part; ids that are no row of the embedding count as none.
std::optional<int64_t> token_named(Reader& reader, std::string_view part, int64_t vocab) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", part);
  const auto id = reader.file().metadata().integer(key);
  if (!id || (*id >= 0 && *id < vocab)) return id;
  reader.assume({.key = key,
                 .from = std::to_string(*id),
                 .to = "none",
                 .why = fmt::format("the embedding has {} rows", vocab)});
  return std::nullopt;
}

// Returns the tokens that end an answer.
std::vector<int64_t> end_ids(Reader& reader, int64_t vocab) {
  const std::vector<int64_t> by_text = gguf_ends_by_text(reader.file().metadata(), vocab);
  std::set<int64_t> named;
  for (const std::string_view part : {"eos", "eot", "eom"})
    if (const auto id = token_named(reader, part, vocab)) named.insert(*id);
  std::set<int64_t> ids = named;
  ids.insert(by_text.begin(), by_text.end());
  if (ids != named)
    reader.assume({.key = "tokenizer.ggml.eos_token_id",
                   .from = named.empty() ? "no token" : fmt::format("{}", fmt::join(named, ", ")),
                   .to = fmt::format("{}", fmt::join(ids, ", ")),
                   .why = "the texts of these tokens end answers, too"});
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
  const int64_t vocab = embedding.tensor->shape[0];
  config["eos_token_id"] = end_ids(reader, vocab);
  if (const auto id = token_named(reader, "bos", vocab)) config["bos_token_id"] = *id;
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
  config["attention_bias"] =
      reader.has_tensor("blk.0.attn_q.bias") || reader.has_tensor("blk.0.attn_qkv.bias");
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
  read_gguf_deepseek_experts(reader, config, true);
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

// Returns the heads of keys of each layer, of which linear ones have none. Newer files list the
// linear layers, older ones the heads, or an interval alone.
std::vector<double> hybrid_kv_heads(Reader& reader, int64_t layers) {
  constexpr std::string_view kHeads = "attention.head_count_kv";
  constexpr std::string_view kLinear = "attention.recurrent_layers";
  if (!reader.has(kHeads)) reader.required(kHeads);
  std::vector<double> heads = reader.for_layers(kHeads, layers);
  if (reader.has(kLinear)) {
    const std::vector<double> linear = reader.for_layers(kLinear, layers);
    for (size_t i = 0; i < heads.size(); ++i)
      if (linear[i] != 0) heads[i] = 0;
    return heads;
  }
  if (std::ranges::count(heads, 0.0) > 0) return heads;
  const int64_t interval =
      std::max<int64_t>(reader.integer("full_attention_interval").value_or(4), 1);
  for (int64_t i = 0; i < layers; ++i)
    if ((i + 1) % interval != 0) heads[static_cast<size_t>(i)] = 0;
  return heads;
}

// Reads a model with delta nets beside gated attention. A layer without heads of keys is linear.
void read_hybrid(Reader& reader, Json& config) {
  const std::vector<double> kv_heads = hybrid_kv_heads(reader, gguf_num_layers(config));
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
    {"deepseek2", "", read_gguf_deepseek2},
    {"mistral4", "Mistral4ForCausalLM", read_gguf_mistral4},
    {"glm4moe", "Glm4MoeForCausalLM", read_glm4moe},
    {"ernie4_5-moe", "Ernie4_5_MoeForCausalLM", read_ernie},
    {"gpt-oss", "GptOssForCausalLM", read_gguf_gpt_oss},
    {"minimax-m2", "MiniMaxM2ForCausalLM", read_minimax_m2},
    {"mimo2", "MiMoV2FlashForCausalLM", read_gguf_mimo2},
    {"step35", "Step3p5ForCausalLM", read_gguf_step35},
    {"gemma4", "Gemma4ForCausalLM", read_gguf_gemma4},
    {"kimi-linear", "KimiLinearForCausalLM", read_gguf_kimi_linear},
    {"qwen3next", "Qwen3NextForCausalLM", read_hybrid},
    {"qwen35", "Qwen3_5ForCausalLM", read_hybrid},
    {"qwen35moe", "Qwen3_5MoeForCausalLM", read_hybrid},
};

Result<Json> read_config(Reader& reader) {
  const std::string path = reader.file().path().string();
  const auto* const found =
      std::ranges::find(kArchitectures, reader.architecture(), &Architecture::name);
  if (found == std::end(kArchitectures))
    return fail(error(ErrorCode::unsupported_model,
                      "{}: the architecture {} is not supported in GGUF; supported are {}", path,
                      quoted_ascii(reader.architecture()), gguf_architectures())
                    .with_fix("take the model's folder in safetensors, if it is supported"));
  Json config = Json::object();
  config["architectures"] = Json::array({found->folder});
  read_common(reader, config);
  if (!reader.status()) found->read(reader, config);
  if (reader.status()) {
    Error e = *reader.status();
    e.message = path + ": " + e.message;
    return fail(std::move(e));
  }
  return config;
}

}  // namespace

std::string gguf_architectures() {
  std::vector<std::string_view> names;
  for (const Architecture& each : kArchitectures) names.push_back(each.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<std::string> gguf_config_json(const GgufFile& file) {
  Reader reader(file);
  HOCKET_TRY(const Json config, read_config(reader));
  return config.dump();
}

std::vector<GgufAssumption> gguf_config_assumptions(const GgufFile& file) {
  Reader reader(file);
  const Result<Json> config = read_config(reader);
  return config ? reader.assumptions() : std::vector<GgufAssumption>{};
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
