#include "compute/weights/hf_config.h"

#include <simdjson.h>

#include <algorithm>
#include <exception>

#include "compute/weights/json_fields.h"

namespace hocket {
namespace {

constexpr int64_t kConfigBytesMax = int64_t{16} << 20;
constexpr std::string_view kDense = "Qwen3ForCausalLM";
constexpr std::string_view kMoe = "Qwen3MoeForCausalLM";

// Upper bounds keep every product of sizes (a model's bytes at most) inside int64.
constexpr Range kLayers{1, 512};
constexpr Range kHidden{1, 1 << 16};
constexpr Range kHeads{1, 1024};
constexpr Range kHeadDim{2, 1024};
constexpr Range kIntermediate{1, 1 << 19};
constexpr Range kExperts{0, 4096};
constexpr Range kVocab{1, 1 << 24};
constexpr Range kPositions{1, 1 << 26};
constexpr Range kTokenIds{0, (1 << 24) - 1};
constexpr Range kPositive{1e-12, 1e12};

// Keys that change the arithmetic of a model, and the values (as JSON) that leave it as it is here.
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
      {"use_qk_norm", {"true"}},
      {"qk_norm", {"true"}},
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
      {"add_full_attention_sink_bias", {"false"}},
      {"add_swa_attention_sink_bias", {"false"}},
      {"hybrid_layer_pattern", {}},
      {"full_attention_interval", {"1"}},
      {"no_rope_layers", {"[]"}},
      {"kv_lora_rank", {"0"}},
      {"q_lora_rank", {"0"}},
      {"linear_num_key_heads", {"0"}},
      {"n_routed_experts", {"0"}},
      {"n_shared_experts", {"0"}},
      {"num_shared_experts", {"0"}},
      {"shared_expert_intermediate_size", {"0"}},
      {"routed_scaling_factor", {"1"}},
      {"n_group", {"0", "1"}},
      {"topk_group", {"0", "1"}},
      {"scoring_func", {"\"softmax\""}},
      {"topk_method", {"\"greedy\""}},
      {"use_bidirectional_attention", {"false"}},
  };
  return keys;
}

std::string listed(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : ", ") + std::string(name);
  return text;
}

Error unsupported(std::string message) {
  return error(ErrorCode::unsupported_model, "{}", message)
      .with_fix("choose a model of a supported form: " + listed(supported_architectures()) +
                " in bf16, f16 or f32");
}

std::string read_architecture(JsonFields& config) {
  const std::vector<std::string> names = config.texts("architectures");
  if (names.empty()) {
    config.refuse(error(ErrorCode::bad_config, "config.json: architectures is missing or empty")
                      .with_fix("take the file from the model's publisher again"));
    return {};
  }
  if (names[0] != kDense && names[0] != kMoe)
    config.refuse(unsupported(fmt::format("the architecture {} is not supported; supported are {}",
                                          shown(names[0]), listed(supported_architectures()))));
  return names[0];
}

void refuse_other_arithmetic(JsonFields& config, int num_layers, int head_dim) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    if (std::optional<JsonFields> part = config.object(key)) {
      const std::string method = part->show("quant_method");
      config.refuse(
          unsupported(fmt::format("config.json: the weights are quantized ({}: {}), which "
                                  "is not supported yet",
                                  key, method.empty() ? "no quant_method" : method)));
    }
  }
  for (const ArithmeticKey& entry : arithmetic_keys()) {
    if (!config.has(entry.key)) continue;
    const std::string value = config.show(entry.key);
    const auto same = [&](std::string_view neutral) {
      return value == neutral || value == std::string(neutral) + ".0";
    };
    if (std::none_of(entry.neutral.begin(), entry.neutral.end(), same))
      config.refuse(unsupported(fmt::format(
          "config.json: {} is {}, which would change the arithmetic and is not supported",
          entry.key, value)));
  }
  if (config.has("v_head_dim") && config.integer("v_head_dim", kHeadDim) != head_dim)
    config.refuse(unsupported(fmt::format("config.json: v_head_dim {} differs from head_dim {}",
                                          config.show("v_head_dim"), head_dim)));
  const std::vector<std::string> kinds = config.texts("layer_types");
  for (const std::string& kind : kinds)
    if (kind != "full_attention")
      config.refuse(unsupported(fmt::format(
          "config.json: layer_types holds {}; only \"full_attention\" is supported", shown(kind))));
  if (!kinds.empty() && static_cast<int>(kinds.size()) != num_layers)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: layer_types has {} entries for {} layers", kinds.size(),
                        num_layers));
}

RopeConfig::Scaling read_scaling_kind(JsonFields& config, JsonFields& rope) {
  const std::string kind =
      rope.has("rope_type") ? rope.text("rope_type", "default") : rope.text("type", "default");
  if (kind == "linear") return RopeConfig::Scaling::linear;
  if (kind == "llama3") return RopeConfig::Scaling::llama3;
  if (kind == "yarn") return RopeConfig::Scaling::yarn;
  if (kind != "default")
    config.refuse(
        unsupported(fmt::format("config.json: rope scaling of type {} is not supported; "
                                "supported are default, linear, llama3, yarn",
                                shown(kind))));
  if (rope.has("mrope_section"))
    config.refuse(
        unsupported("config.json: rope positions in three axes (mrope_section) are not "
                    "supported"));
  return RopeConfig::Scaling::none;
}

void read_scaling(JsonFields& config, JsonFields& rope, int positions, RopeConfig& out) {
  using Scaling = RopeConfig::Scaling;
  out.scaling = read_scaling_kind(config, rope);
  if (out.scaling == Scaling::none) return;
  out.factor = rope.number("factor", {1, 1e6});
  if (out.scaling == Scaling::llama3) {
    out.low_freq_factor = rope.number("low_freq_factor", kPositive);
    out.high_freq_factor = rope.number("high_freq_factor", kPositive);
    out.original_context = rope.number("original_max_position_embeddings", {1, 1e12});
    if (out.high_freq_factor <= out.low_freq_factor)
      rope.refuse(error(ErrorCode::bad_config,
                        "config.json: high_freq_factor {} is not above low_freq_factor {}",
                        out.high_freq_factor, out.low_freq_factor));
  }
  if (out.scaling == Scaling::yarn) {
    out.original_context = rope.number("original_max_position_embeddings", {1, 1e12}, positions);
    out.beta_fast = rope.number("beta_fast", kPositive, 32);
    out.beta_slow = rope.number("beta_slow", kPositive, 1);
    out.truncate = rope.flag("truncate", true);
    out.attention_factor = rope.number_if("attention_factor", kPositive);
    out.mscale = rope.number("mscale", {0, 1e6}, 0);
    out.mscale_all_dim = rope.number("mscale_all_dim", {0, 1e6}, 0);
  }
}

// Two generations: rope_parameters, or rope_theta and rope_scaling beside the other keys.
RopeConfig read_rope(JsonFields& config, const ModelConfig& model) {
  RopeConfig out;
  std::optional<JsonFields> rope = config.object("rope_parameters");
  if (rope) {
    // Models of several layer types hold one dictionary each; here all layers are of one.
    if (std::optional<JsonFields> inner = rope->object("full_attention")) rope = inner;
  } else {
    rope = config.object("rope_scaling");
  }
  const Range thetas{1.0001, 1e15};
  out.theta = config.number("rope_theta", thetas, 10000);
  double share = config.number("partial_rotary_factor", {0, 1}, 1);
  if (rope) {
    out.theta = rope->number("rope_theta", thetas, out.theta);
    share = rope->number("partial_rotary_factor", {0, 1}, share);
    read_scaling(config, *rope, model.max_position_embeddings, out);
    config.absorb(*rope);
  }
  out.rotary_dim = static_cast<int>(model.head_dim * share);
  if (out.rotary_dim < 2 || out.rotary_dim % 2 != 0)
    config.refuse(error(ErrorCode::bad_config,
                        "config.json: the rotary part of a head has {} of {} dimensions (head_dim, "
                        "partial_rotary_factor), but must be even and at least 2",
                        out.rotary_dim, model.head_dim));
  return out;
}

void read_attention_sizes(JsonFields& config, ModelConfig& model) {
  model.num_heads = config.integer("num_attention_heads", kHeads);
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

void read_moe(JsonFields& config, ModelConfig& model) {
  const std::string_view key = config.has("num_experts") ? "num_experts" : "num_local_experts";
  const int num_experts = config.integer(key, kExperts);
  const std::vector<int64_t> dense = config.integers("mlp_only_layers", {0, 1 << 20});
  const int sparse_step = config.integer("decoder_sparse_step", kLayers, 1);
  if (!config.status() || num_experts == 0) return;
  for (int layer = 0; layer < model.num_layers; ++layer)
    model.layer_is_moe[layer] = (layer + 1) % sparse_step == 0 &&
                                std::find(dense.begin(), dense.end(), layer) == dense.end();
  model.moe.num_experts = num_experts;
  model.moe.top_k = config.integer("num_experts_per_tok", {1, double(num_experts)});
  model.moe.intermediate_size = config.integer("moe_intermediate_size", kIntermediate);
  model.moe.norm_topk_prob = config.flag("norm_topk_prob", false);
}

DType read_dtype(JsonFields& config) {
  std::string name = config.text(config.has("dtype") ? "dtype" : "torch_dtype", "bfloat16");
  if (name.starts_with("torch.")) name = name.substr(6);
  if (name == "float32") return DType::f32;
  if (name == "float16") return DType::f16;
  if (name != "bfloat16" && name != "auto")
    config.refuse(
        unsupported(fmt::format("config.json: weights of type {} are not supported; "
                                "supported are bfloat16, float16, float32",
                                shown(name))));
  return DType::bf16;
}

void add_eos(std::vector<TokenId>& ids, const std::vector<int64_t>& more) {
  for (const int64_t id : more) {
    const TokenId token{static_cast<int32_t>(id)};
    if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  }
}

ModelConfig read_model(JsonFields& config) {
  ModelConfig model;
  model.architecture = read_architecture(config);
  if (!config.status()) return model;
  model.vocab_size = config.integer("vocab_size", kVocab);
  model.hidden_size = config.integer("hidden_size", kHidden);
  model.num_layers = config.integer("num_hidden_layers", kLayers);
  model.max_position_embeddings = config.integer("max_position_embeddings", kPositions);
  const std::string_view eps = config.has("rms_norm_eps") ? "rms_norm_eps" : "layernorm_epsilon";
  model.rms_norm_eps = config.number(eps, {0, 0.1}, 1e-6);
  model.tie_word_embeddings = config.flag("tie_word_embeddings", false);
  model.stored_dtype = read_dtype(config);
  read_attention_sizes(config, model);
  refuse_other_arithmetic(config, model.num_layers, model.head_dim);
  if (!config.status()) return model;

  model.rope = read_rope(config, model);
  model.layer_is_moe.assign(model.num_layers, false);
  if (model.architecture == kMoe) read_moe(config, model);
  // A model whose layers are all MoE has no dense MLP, and may leave its width out.
  const bool has_dense = std::find(model.layer_is_moe.begin(), model.layer_is_moe.end(), false) !=
                         model.layer_is_moe.end();
  model.intermediate_size = has_dense ? config.integer("intermediate_size", kIntermediate)
                                      : config.integer("intermediate_size", {0, 1 << 19}, 0);
  const Range ids{0, double(model.vocab_size - 1)};
  add_eos(model.eos_ids, config.integers("eos_token_id", ids));
  if (config.has("bos_token_id"))
    model.bos_id = TokenId{static_cast<int32_t>(config.integer("bos_token_id", ids))};
  return model;
}

// Parses `text` and gives its root object to `read`.
template <class T, class Read>
Result<T> with_json(std::string_view text, const std::string& name, Read read) try {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  const auto code = parser.parse(text.data(), text.size()).get(root);
  if (code != simdjson::SUCCESS)
    return fail(error(ErrorCode::bad_config, "{} is not a JSON object: {}", name,
                      simdjson::error_message(code))
                    .with_fix("take the file from the model's publisher again"));
  if (const auto key = repeated_key(root))
    return fail(ErrorCode::bad_config, "{} holds the key {} twice", name, shown(*key));
  JsonFields fields(root, name);
  T value = read(fields);
  HOCKET_TRY_VOID(fields.status());
  return value;
} catch (const std::exception& e) {
  return fail(ErrorCode::bad_config, "{} cannot be read: {}", name, e.what());
}

struct GenerationFile {
  GenerationDefaults defaults;
  std::vector<int64_t> eos_ids;
};

Result<GenerationFile> read_generation_file(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "generation_config.json";
  std::error_code ec;
  if (!std::filesystem::exists(file, ec)) return GenerationFile{};
  HOCKET_TRY(const std::string text, read_small_file(file, kConfigBytesMax));
  return with_json<GenerationFile>(text, "generation_config.json", [](JsonFields& fields) {
    GenerationFile out;
    out.defaults.temperature = fields.number_if("temperature", {0, 100});
    out.defaults.top_p = fields.number_if("top_p", {0, 1});
    out.defaults.min_p = fields.number_if("min_p", {0, 1});
    out.defaults.repetition_penalty = fields.number_if("repetition_penalty", {1e-6, 1e6});
    if (fields.has("top_k"))
      out.defaults.top_k = static_cast<int>(fields.integer("top_k", {-1, kVocab.max}));
    out.eos_ids = fields.integers("eos_token_id", kTokenIds);
    return out;
  });
}

}  // namespace

std::vector<std::string_view> supported_architectures() {
  return {kDense, kMoe};
}

Result<ModelConfig> parse_hf_config(std::string_view config_json) {
  return with_json<ModelConfig>(config_json, "config.json", read_model);
}

Result<ModelConfig> read_hf_config(const std::filesystem::path& folder) {
  std::error_code ec;
  if (!std::filesystem::is_directory(folder, ec))
    return fail(error(ErrorCode::model_not_found, "there is no folder {}", folder.string())
                    .with_fix("--model-path must name a Hugging Face model folder"));
  HOCKET_TRY(const std::string text, read_small_file(folder / "config.json", kConfigBytesMax));
  HOCKET_TRY(ModelConfig model, parse_hf_config(text));
  HOCKET_TRY(const GenerationFile generation, read_generation_file(folder));
  for (const int64_t id : generation.eos_ids)
    if (id >= model.vocab_size)
      return fail(ErrorCode::bad_config,
                  "generation_config.json: eos_token_id {} is not below the vocab_size {}", id,
                  model.vocab_size);
  add_eos(model.eos_ids, generation.eos_ids);
  return model;
}

Result<GenerationDefaults> read_generation_defaults(const std::filesystem::path& folder) {
  HOCKET_TRY(GenerationFile file, read_generation_file(folder));
  return file.defaults;
}

}  // namespace hocket
