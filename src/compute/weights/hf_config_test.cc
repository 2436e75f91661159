#include "compute/weights/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/source_dir_testing.h"
#include "compute/weights/config_testing.h"
#include "compute/weights/golden_folder_testing.h"

namespace hocket {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Keys = std::map<std::string, std::string>;  // key -> JSON; an empty value removes the key

// A small valid Qwen3-MoE config with some keys changed.
std::string config(const Keys& changes = {}) {
  Keys keys = {{"architectures", R"(["Qwen3MoeForCausalLM"])"},
               {"vocab_size", "512"},
               {"hidden_size", "64"},
               {"intermediate_size", "96"},
               {"num_hidden_layers", "4"},
               {"num_attention_heads", "4"},
               {"num_key_value_heads", "2"},
               {"head_dim", "32"},
               {"max_position_embeddings", "1024"},
               {"moe_intermediate_size", "32"},
               {"num_experts", "8"},
               {"num_experts_per_tok", "3"},
               {"eos_token_id", "2"}};
  for (const auto& [key, json] : changes) keys[key] = json;
  std::string text;
  for (const auto& [key, json] : keys)
    if (!json.empty()) text += (text.empty() ? "{\"" : ",\"") + key + "\":" + json;
  return text + "}";
}

ModelConfig parsed_with(const Keys& changes) {
  return parsed(config(changes));
}

Error refused_with(const Keys& changes) {
  return refused(config(changes));
}

class Folder {
 public:
  Folder()
      : path_(std::filesystem::path(testing::TempDir()) /
              ("hf_config_" + std::to_string(getpid()))) {
    std::filesystem::create_directories(path_);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(HfConfig, ReadsQwen3WithYarn) {
  const auto model = read_hf_config(kGolden / "qwen3");
  ASSERT_TRUE(model.has_value()) << describe(model.error());
  EXPECT_EQ(model->architecture, "Qwen3ForCausalLM");
  EXPECT_EQ(model->vocab_size, 512);
  EXPECT_EQ(model->hidden_size, 64);
  EXPECT_EQ(model->num_layers, 2);
  EXPECT_EQ(model->num_heads, 4);
  EXPECT_EQ(model->num_kv_heads, 2);
  EXPECT_EQ(model->head_dim, 32);
  EXPECT_EQ(model->intermediate_size, 128);
  EXPECT_EQ(model->max_position_embeddings, 256);
  EXPECT_EQ(model->rms_norm_eps, 1e-6);
  EXPECT_TRUE(model->tie_word_embeddings);
  EXPECT_EQ(model->stored_dtype, DType::f32);
  EXPECT_EQ(model->rope.scaling, RopeConfig::Scaling::yarn);
  EXPECT_EQ(model->rope.theta, 1e6);
  EXPECT_EQ(model->rope.rotary_dim, 32);
  EXPECT_EQ(model->rope.factor, 4);
  EXPECT_EQ(model->rope.original_context, 64);
  EXPECT_EQ(model->moe.num_experts, 0);
  EXPECT_THAT(model->layer_is_moe, ElementsAre(false, false));
  EXPECT_THAT(model->eos_ids, ElementsAre(TokenId{2}));
  EXPECT_EQ(model->bos_id, TokenId{1});
}

TEST(HfConfig, ReadsQwen3MoeWithADenseLayer) {
  for (const char* name : {"qwen3_moe", "qwen3_moe_bf16"}) {
    const auto model = read_hf_config(kGolden / name);
    ASSERT_TRUE(model.has_value()) << describe(model.error());
    EXPECT_EQ(model->architecture, "Qwen3MoeForCausalLM");
    EXPECT_EQ(model->moe.num_experts, 8);
    EXPECT_EQ(model->moe.top_k, 3);
    EXPECT_EQ(model->moe.intermediate_size, 32);
    EXPECT_TRUE(model->moe.norm_topk_prob);
    EXPECT_EQ(model->intermediate_size, 96);
    EXPECT_THAT(model->layer_is_moe, ElementsAre(true, false, true, true));
    EXPECT_EQ(model->rope.scaling, RopeConfig::Scaling::none);
    EXPECT_FALSE(model->tie_word_embeddings);
    EXPECT_EQ(model->stored_dtype, name == std::string("qwen3_moe") ? DType::f32 : DType::bf16);
  }
}

TEST(HfConfig, ReadsTheNewerKeys) {
  const auto model = read_hf_config(kGolden / "qwen3_moe_sparse2");
  ASSERT_TRUE(model.has_value()) << describe(model.error());
  EXPECT_EQ(model->moe.num_experts, 8);
  EXPECT_FALSE(model->moe.norm_topk_prob);
  EXPECT_THAT(model->layer_is_moe, ElementsAre(false, true, false, true));
  EXPECT_EQ(model->rope.theta, 1e6);
  EXPECT_THAT(model->eos_ids, ElementsAre(TokenId{2}, TokenId{3}));
  EXPECT_EQ(model->stored_dtype, DType::f32);
}

TEST(HfConfig, ReadsEveryGoldenModel) {
  using Layout = QuantConfig::Layout;
  const std::map<std::string, std::pair<std::string, Layout>> cases = {
      {"llama", {"LlamaForCausalLM", Layout::none}},
      {"llama_bf16", {"LlamaForCausalLM", Layout::none}},
      {"qwen2", {"Qwen2ForCausalLM", Layout::none}},
      {"deepseek_v2", {"DeepseekV2ForCausalLM", Layout::none}},
      {"deepseek_v2_lite", {"DeepseekV2ForCausalLM", Layout::none}},
      {"deepseek_v3", {"DeepseekV3ForCausalLM", Layout::none}},
      {"deepseek_v3_plain", {"DeepseekV3ForCausalLM", Layout::none}},
      {"deepseek_v3_fp8", {"DeepseekV3ForCausalLM", Layout::fp8_block}},
      {"glm4_moe", {"Glm4MoeForCausalLM", Layout::none}},
      {"qwen3_moe_mxfp4", {"Qwen3MoeForCausalLM", Layout::mxfp4}},
      {"qwen3_moe_nvfp4", {"Qwen3MoeForCausalLM", Layout::nvfp4}},
      {"quantized/awq", {"Qwen3MoeForCausalLM", Layout::awq}},
      {"quantized/gptq", {"Qwen3MoeForCausalLM", Layout::gptq}},
      {"quantized/packed", {"Qwen3MoeForCausalLM", Layout::packed}},
      {"quantized/w8a8", {"Qwen3MoeForCausalLM", Layout::int8_channel}},
      {"quantized/fp8_channel", {"Qwen3MoeForCausalLM", Layout::fp8_channel}}};
  for (const auto& [folder, expected] : cases) {
    const auto model = read_hf_config(kGolden / folder);
    ASSERT_TRUE(model.has_value()) << folder << ": " << describe(model.error());
    EXPECT_EQ(model->architecture, expected.first) << folder;
    EXPECT_EQ(model->quant.layout, expected.second) << folder;
  }
}

TEST(HfConfig, ReadsTheBundledModel) {
  const auto folder = source_dir() / "models/hocket-tiny-qwen3-moe";
  const auto model = read_hf_config(folder);
  ASSERT_TRUE(model.has_value()) << describe(model.error());
  EXPECT_EQ(model->moe.num_experts, 16);
  EXPECT_EQ(model->head_dim, 64);
  EXPECT_EQ(model->num_mtp_layers, 1);
  EXPECT_FALSE(model->bos_id.has_value());
  EXPECT_THAT(model->eos_ids, ElementsAre(TokenId{2041}, TokenId{2039}));
  const auto defaults = read_generation_defaults(folder);
  ASSERT_TRUE(defaults.has_value());
  EXPECT_EQ(defaults->temperature, 0.3);
  EXPECT_FALSE(defaults->top_k.has_value());
}

TEST(HfConfig, DefaultsAreThePublishedOnes) {
  const ModelConfig model = parsed_with({{"head_dim", ""}, {"num_key_value_heads", ""}});
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.num_kv_heads, 4);
  EXPECT_EQ(model.rms_norm_eps, 1e-6);
  EXPECT_EQ(model.rope.theta, 10000);
  EXPECT_FALSE(model.moe.norm_topk_prob);
  EXPECT_FALSE(model.tie_word_embeddings);
  EXPECT_EQ(model.num_mtp_layers, 0);
  EXPECT_FALSE(model.bos_id.has_value());
  EXPECT_THAT(model.layer_is_moe, ElementsAre(true, true, true, true));
}

TEST(HfConfig, NullAndHarmlessKeysAreNothing) {
  const ModelConfig model = parsed_with(
      {{"head_dim", "null"},
       {"rope_scaling", "null"},
       {"sliding_window", "4096"},
       {"use_sliding_window", "false"},
       {"attention_bias", "false"},
       {"quantization_config", "null"},
       {"routed_scaling_factor", "1.0"},
       {"layer_types", R"(["full_attention","full_attention","full_attention","full_attention"])"},
       {"attention_dropout", "0.0"},
       {"a_key_of_the_future", "[1,{}]"}});
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.rope.scaling, RopeConfig::Scaling::none);
}

TEST(HfConfig, ReadsEveryRopeScaling) {
  const RopeConfig linear = parsed_with({{"rope_scaling", R"({"type":"linear","factor":2})"}}).rope;
  EXPECT_EQ(linear.scaling, RopeConfig::Scaling::linear);
  EXPECT_EQ(linear.factor, 2);
  const RopeConfig llama3 =
      parsed_with({{"rope_scaling", R"({"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,
               "high_freq_factor":4.0,"original_max_position_embeddings":64})"}})
          .rope;
  EXPECT_EQ(llama3.scaling, RopeConfig::Scaling::llama3);
  EXPECT_EQ(llama3.high_freq_factor, 4);
  EXPECT_EQ(llama3.original_context, 64);
  const RopeConfig yarn =
      parsed_with(
          {{"rope_parameters", R"({"full_attention":{"rope_type":"yarn","rope_theta":5e6,"factor":4,
               "beta_fast":16,"beta_slow":2,"truncate":false,"attention_factor":1.5,"mscale":0.7,
               "mscale_all_dim":0.8,"partial_rotary_factor":0.5}})"}})
          .rope;
  EXPECT_EQ(yarn.scaling, RopeConfig::Scaling::yarn);
  EXPECT_EQ(yarn.theta, 5e6);
  EXPECT_EQ(yarn.rotary_dim, 16);
  EXPECT_EQ(yarn.original_context, 1024);  // absent: max_position_embeddings
  EXPECT_EQ(yarn.beta_fast, 16);
  EXPECT_EQ(yarn.beta_slow, 2);
  EXPECT_FALSE(yarn.truncate);
  EXPECT_EQ(yarn.attention_factor, 1.5);
  EXPECT_EQ(yarn.mscale, 0.7);
  EXPECT_EQ(yarn.mscale_all_dim, 0.8);
  EXPECT_EQ(
      parsed_with({{"rope_scaling", R"({"type":"default"})"}, {"rope_theta", "5000"}}).rope.theta,
      5000);
}

TEST(HfConfig, UnknownArchitecturesAreNamedWithWhatIsSupported) {
  for (const char* name :
       {"DeepseekV32ForCausalLM", "Glm4ForCausalLM", "Gemma3ForCausalLM", "Gemma3nForCausalLM"}) {
    const Error e = refused_with(Keys{{"architectures", "[\"" + std::string(name) + "\"]"}});
    EXPECT_EQ(e.code, ErrorCode::unsupported_model);
    EXPECT_THAT(e.message, HasSubstr(name));
    for (const std::string_view supported : supported_architectures())
      EXPECT_THAT(e.message, HasSubstr(std::string(supported)));
  }
  // The architecture is named even if all sizes are nested elsewhere.
  const Error nested = refused(R"({"architectures":["Gemma3ForConditionalGeneration"],
      "text_config":{"hidden_size":64},"vision_config":{"depth":4}})");
  EXPECT_THAT(nested.message, HasSubstr("Gemma3ForConditionalGeneration"));
}

// A plan looks at every expert of every layer.
TEST(HfConfig, ExpertsOfAllLayersAreBounded) {
  const Error e = refused_with(Keys{{"num_hidden_layers", "65"}, {"num_experts", "4096"}});
  EXPECT_THAT(e.message, HasSubstr("65 layers are 266240 experts, but supported are 262144"));
}

TEST(HfConfig, FieldsThatChangeTheArithmeticAreRefusedByName) {
  const Keys cases = {
      {"use_sliding_window", "true"},
      {"mlp_bias", "true"},
      {"hidden_act", "\"gelu\""},
      {"attn_logit_softcapping", "50.0"},
      {"final_logit_softcapping", "30.0"},
      {"embedding_multiplier", "12"},
      {"residual_multiplier", "0.22"},
      {"logit_scale", "0.0625"},
      {"use_qk_norm", "false"},
      {"text_config", "{}"},
      {"vision_config", R"({"depth":4})"},
      {"v_head_dim", "16"},
      {"n_shared_experts", "1"},
      {"routed_scaling_factor", "2.5"},
      {"scoring_func", "\"sigmoid\""},
      {"swiglu_limit", "7.0"},
      {"kv_lora_rank", "32"},
      {"attn_output_gate", "true"},
      {"quantization_config", R"({"quant_method":"fp8","fmt":"e5m2"})"},
      {"layer_types",
       R"(["full_attention","sliding_attention","full_attention","full_attention"])"}};
  for (const auto& [key, json] : cases) {
    const Error e = refused_with(Keys{{key, json}});
    EXPECT_EQ(e.code, ErrorCode::unsupported_model) << key;
    EXPECT_THAT(e.message, HasSubstr(key));
    EXPECT_FALSE(e.fix.empty());
  }
  EXPECT_THAT(
      refused_with(Keys{{"quantization_config", R"({"quant_method":"fp8","fmt":"e5m2"})"}}).message,
      HasSubstr("e5m2"));
  for (const char* kind : {"dynamic", "longrope", "mrope", "su"}) {
    const Error e = refused_with(
        Keys{{"rope_scaling", "{\"type\":\"" + std::string(kind) + "\",\"factor\":2}"}});
    EXPECT_EQ(e.code, ErrorCode::unsupported_model);
    EXPECT_THAT(e.message, HasSubstr(kind));
  }
  EXPECT_THAT(refused_with(Keys{{"torch_dtype", "\"float8_e4m3fn\""}}).message,
              HasSubstr("float8_e4m3fn"));
}

TEST(HfConfig, ImpossibleValuesAreRefusedByKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"vocab_size", ""},
      {"vocab_size", "0"},
      {"vocab_size", "-1"},
      {"vocab_size", "1e9"},
      {"vocab_size", "512.0"},
      {"vocab_size", "\"512\""},
      {"hidden_size", "9223372036854775807"},
      {"hidden_size", "18446744073709551615"},
      {"hidden_size", "true"},
      {"num_hidden_layers", "1000000"},
      {"num_hidden_layers", "[4]"},
      {"num_attention_heads", "0"},
      {"num_key_value_heads", "3"},
      {"num_key_value_heads", "8"},
      {"head_dim", "0"},
      {"head_dim", "31"},
      {"head_dim", "100000"},
      {"max_position_embeddings", "0"},
      {"rms_norm_eps", "-1e-6"},
      {"rms_norm_eps", "\"1e-6\""},
      {"num_experts", "-8"},
      {"num_experts_per_tok", "9"},
      {"num_experts_per_tok", "0"},
      {"moe_intermediate_size", "0"},
      {"decoder_sparse_step", "0"},
      {"mlp_only_layers", "[-1]"},
      {"mlp_only_layers", "{}"},
      {"norm_topk_prob", "1"},
      {"eos_token_id", "512"},
      {"eos_token_id", "[2,-1]"},
      {"eos_token_id", "\"</s>\""},
      {"bos_token_id", "4096"},
      {"rope_theta", "0"},
      {"rope_theta", "-1"},
      {"rope_scaling", "3"},
      {"tie_word_embeddings", "\"yes\""},
      {"architectures", "[]"},
      {"architectures", "[1]"},
      {"architectures", ""}};
  for (const auto& [key, json] : cases) {
    const Error e = refused_with(Keys{{key, json}});
    EXPECT_EQ(e.code, ErrorCode::bad_config) << key << " " << json;
    EXPECT_THAT(e.message, HasSubstr(key)) << json;
  }
  EXPECT_THAT(refused_with(Keys{{"rope_scaling", R"({"type":"yarn","factor":0.5})"}}).message,
              HasSubstr("factor"));
  EXPECT_THAT(refused_with(Keys{{"rope_scaling", R"({"type":"llama3","factor":8})"}}).message,
              HasSubstr("low_freq_factor"));
  EXPECT_THAT(refused_with(Keys{{"head_dim", ""}, {"hidden_size", "65536"}}).message,
              HasSubstr("head_dim"));
  EXPECT_THAT(refused_with(Keys{{"partial_rotary_factor", "0.1"}}).message, HasSubstr("rotary"));
  EXPECT_THAT(refused_with(Keys{{"head_dim", ""}, {"num_attention_heads", "6"}}).message,
              HasSubstr("head_dim"));
}

TEST(HfConfig, WhatIsNoJsonObjectIsRefused) {
  for (const std::string text :
       {"", "{", "[]", "null", "{\"a\":1}}", "\xff\xfe{}", "{\"vocab_size\": NaN}", "{'a': 1}"}) {
    const Error e = refused(text);
    EXPECT_EQ(e.code, ErrorCode::bad_config) << text;
  }
  EXPECT_EQ(refused(std::string(100'000, '[')).code, ErrorCode::bad_config);
  EXPECT_THAT(refused(R"({"vocab_size":1,"vocab_size":2})").message, HasSubstr("twice"));
}

TEST(HfConfig, ControlCharactersOfAFileDoNotReachTheTerminal) {
  const Error e = refused_with(Keys{{"architectures", R"(["\u001b[31mevil"])"}});
  EXPECT_EQ(e.message.find('\x1b'), std::string::npos);
  EXPECT_THAT(e.message, HasSubstr("evil"));
}

TEST(HfConfig, EosIsTheUnionWithGenerationConfig) {
  const Folder folder;
  folder.write("config.json", config({{"eos_token_id", "[7, 2]"}}));
  folder.write("generation_config.json",
               R"({"eos_token_id":[2,9],"temperature":0.3,"top_p":0.9,"top_k":20,"min_p":0,
                   "repetition_penalty":1.05,"do_sample":true})");
  const auto model = read_hf_config(folder.path());
  ASSERT_TRUE(model.has_value()) << describe(model.error());
  EXPECT_THAT(model->eos_ids, ElementsAre(TokenId{7}, TokenId{2}, TokenId{9}));
  const auto defaults = read_generation_defaults(folder.path());
  ASSERT_TRUE(defaults.has_value());
  EXPECT_EQ(defaults->temperature, 0.3);
  EXPECT_EQ(defaults->top_p, 0.9);
  EXPECT_EQ(defaults->top_k, 20);
  EXPECT_EQ(defaults->min_p, 0);
  EXPECT_EQ(defaults->repetition_penalty, 1.05);

  folder.write("generation_config.json", R"({"eos_token_id":512})");
  EXPECT_EQ(read_hf_config(folder.path()).error().code, ErrorCode::bad_config);
  folder.write("generation_config.json", R"({"top_p":"high"})");
  EXPECT_THAT(read_generation_defaults(folder.path()).error().message, HasSubstr("top_p"));
  std::filesystem::remove(folder.path() / "generation_config.json");
  EXPECT_FALSE(read_generation_defaults(folder.path())->temperature.has_value());
}

TEST(HfConfig, MissingFilesAreNamed) {
  const auto nowhere = read_hf_config("/no/such/folder");
  EXPECT_EQ(nowhere.error().code, ErrorCode::model_not_found);
  EXPECT_THAT(nowhere.error().message, HasSubstr("/no/such/folder"));
  const Folder folder;
  const auto empty = read_hf_config(folder.path());
  EXPECT_EQ(empty.error().code, ErrorCode::model_not_found);
  EXPECT_THAT(empty.error().message, HasSubstr("config.json"));
}

}  // namespace
}  // namespace hocket
