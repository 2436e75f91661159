#include "bench/dummy_shape.h"

#include <unistd.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

namespace hocket {
namespace {

struct DummySizes {
  std::string_view name, architecture;
  int hidden, layers, heads, kv_heads, head_dim, experts, top_k, intermediate;
};

constexpr std::string_view kQwen = "Qwen3MoeForCausalLM", kNext = "Qwen3NextForCausalLM",
                           kGptOss = "GptOssForCausalLM";
constexpr std::array kDummyShapes = {
    DummySizes{"small", kQwen, 1024, 12, 16, 4, 64, 32, 4, 512},
    DummySizes{"mid", kQwen, 2048, 16, 32, 4, 128, 64, 8, 768},
    DummySizes{"wire", kQwen, 2048, 6, 8, 2, 64, 32, 4, 128},
    DummySizes{"hybrid", kNext, 2048, 12, 16, 2, 256, 48, 8, 512},
    DummySizes{"hybrid-small", kNext, 1024, 8, 8, 2, 256, 32, 4, 512},
    DummySizes{"gptoss", kGptOss, 2240, 8, 64, 8, 64, 32, 4, 2240},
};

// The delta nets have as many key heads as the full layers have query heads, and twice as many
// value heads.
void add_delta_nets(const DummySizes& s, nlohmann::json& config) {
  config.update(nlohmann::json({{"model_type", "qwen3_next"},
                                {"full_attention_interval", 4},
                                {"linear_num_key_heads", s.heads},
                                {"linear_num_value_heads", 2 * s.heads},
                                {"linear_key_head_dim", 128},
                                {"linear_value_head_dim", 128},
                                {"linear_conv_kernel_dim", 4},
                                {"partial_rotary_factor", 0.25},
                                {"shared_expert_intermediate_size", s.intermediate}}));
}

// Half of the layers see 128 keys; the experts are MXFP4, as published.
void add_windows(const DummySizes& s, nlohmann::json& config) {
  config.update(nlohmann::json({{"model_type", "gpt_oss"},
                                {"attention_bias", true},
                                {"sliding_window", 128},
                                {"swiglu_limit", 7.0},
                                {"num_local_experts", s.experts},
                                {"intermediate_size", s.intermediate}}));
  config["quantization_config"] = {
      {"quant_method", "mxfp4"},
      {"modules_to_not_convert",
       {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}};
  for (const char* key : {"num_experts", "moe_intermediate_size", "norm_topk_prob"})
    config.erase(key);
  for (int i = 0; i < s.layers; ++i)
    config["layer_types"].push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
}

std::string config_of(const DummySizes& s) {
  nlohmann::json config = {{"architectures", {s.architecture}},
                           {"model_type", "qwen3_moe"},
                           {"hidden_act", "silu"},
                           {"hidden_size", s.hidden},
                           {"num_hidden_layers", s.layers},
                           {"num_attention_heads", s.heads},
                           {"num_key_value_heads", s.kv_heads},
                           {"head_dim", s.head_dim},
                           {"num_experts", s.experts},
                           {"num_experts_per_tok", s.top_k},
                           {"moe_intermediate_size", s.intermediate},
                           {"intermediate_size", 4 * s.hidden},
                           {"norm_topk_prob", true},
                           {"vocab_size", 32000},
                           {"max_position_embeddings", 32768},
                           {"rms_norm_eps", 1e-6},
                           {"rope_theta", 1e6},
                           {"tie_word_embeddings", false},
                           {"torch_dtype", "bfloat16"}};
  if (s.architecture == kNext) add_delta_nets(s, config);
  if (s.architecture == kGptOss) add_windows(s, config);
  return config.dump(2);
}

std::string shape_names() {
  std::string names;
  for (const DummySizes& s : kDummyShapes) names.append(names.empty() ? "" : ", ").append(s.name);
  return names;
}

}  // namespace

Result<DummyShape> DummyShape::create(std::string_view name) {
  const auto shape = std::ranges::find(kDummyShapes, name, &DummySizes::name);
  if (shape == kDummyShapes.end())
    return fail(error(ErrorCode::bad_value, "--shape {} is not one of {}", name, shape_names())
                    .with_param("shape"));
  std::error_code code;
  const std::filesystem::path temporary = std::filesystem::temp_directory_path(code);
  std::string path = (temporary / "hocket-shape-XXXXXX").string();
  if (code || mkdtemp(path.data()) == nullptr)
    return fail(error(ErrorCode::io, "no folder can be made in {}", temporary.string())
                    .with_fix("TMPDIR=a folder that can be written"));
  DummyShape made{path};
  std::ofstream file(made.folder_ / "config.json");
  file << config_of(*shape);
  file.close();
  if (!file) return fail(ErrorCode::io, "{}/config.json cannot be written", path);
  return made;
}

DummyShape::~DummyShape() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace hocket
