// The names in lists of modules that stay plain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "compute/weights/hf_config.h"
#include "compute/weights/quant_config.h"

namespace hocket {
namespace {

using testing::HasSubstr;

// Returns hf_quant_config.json that leaves these modules plain.
std::string modelopt_file(const std::string& modules) {
  return R"({"quantization":{"quant_algo":"NVFP4","group_size":16,"exclude_modules":[)" + modules +
         "]}}";
}

QuantConfig excluding(const std::string& modules) {
  const auto quant = parse_modelopt_config(modelopt_file(modules));
  EXPECT_TRUE(quant.has_value()) << describe(quant.error());
  return quant.value_or(QuantConfig{});
}

TEST(IsQuantized, NamesAreWholeComponents) {
  const QuantConfig quant = {
      .layout = QuantConfig::Layout::fp8_block,
      .skipped = {"lm_head", "model.layers.1", "mlp.gate", "model.layers.3.", "", "."}};
  EXPECT_FALSE(is_quantized(quant, "lm_head"));
  EXPECT_FALSE(is_quantized(quant, "model.layers.1.self_attn.q_proj"));
  EXPECT_TRUE(is_quantized(quant, "model.layers.10.self_attn.q_proj"));
  EXPECT_TRUE(is_quantized(quant, "model.layers.11.self_attn.q_proj"));
  EXPECT_FALSE(is_quantized(quant, "model.layers.3.mlp.up_proj"));
  EXPECT_TRUE(is_quantized(quant, "model.layers.31.mlp.up_proj"));
  EXPECT_FALSE(is_quantized(quant, "model.layers.2.mlp.gate"));
  EXPECT_TRUE(is_quantized(quant, "model.layers.2.mlp.gate_proj"));
  EXPECT_TRUE(is_quantized(quant, "model.layers.2.mlp.experts.7.down_proj"));
}

TEST(IsQuantized, AwqMeansPartsOfNames) {
  const QuantConfig quant = {.layout = QuantConfig::Layout::awq,
                             .skipped = {"shared_expert", "model.layers.0.", ""}};
  EXPECT_FALSE(is_quantized(quant, "model.layers.5.mlp.shared_experts.up_proj"));
  EXPECT_FALSE(is_quantized(quant, "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(is_quantized(quant, "model.layers.10.mlp.up_proj"));
  EXPECT_TRUE(is_quantized(quant, "model.layers.5.mlp.experts.0.up_proj"));
}

TEST(IsQuantized, StarsStandForAnyTextAndNamesEndWithAComponent) {
  const QuantConfig quant = excluding(
      R"("lm_head","model.layers.7.self_attn*","*.shared_experts*","model.layers.*.mlp.gate",
         "model.*.layers.9.*_proj")");
  for (const char* plain :
       {"lm_head", "model.layers.7.self_attn", "model.layers.7.self_attn.q_proj",
        "model.layers.7.self_attn_of_more", "model.layers.3.mlp.shared_experts.up_proj",
        "model.layers.12.mlp.gate", "model.language_model.layers.9.mlp.up_proj",
        "model.language_model.layers.9.mlp.up_proj.inner"})
    EXPECT_FALSE(is_quantized(quant, plain)) << plain;
  for (const char* quantized :
       {"model.layers.17.self_attn.q_proj", "a.model.layers.7.self_attn", "shared_experts.up_proj",
        "model.layers.12.mlp.gate_proj", "model.layers.9.mlp.up_proj",
        "model.language_model.layers.9.mlp.up_proj_of_more", "model", ""})
    EXPECT_TRUE(is_quantized(quant, quantized)) << quantized;
}

TEST(IsQuantized, NamesWithStarsMayBeAsManyAsLayers) {
  std::string modules = R"("lm_head")";
  for (int layer = 0; layer < 61; ++layer)
    for (const char* end : {".self_attn*", ".mlp.shared_experts*"})
      modules += ",\"model.layers." + std::to_string(layer) + end + '"';
  const QuantConfig quant = excluding(modules);
  EXPECT_FALSE(is_quantized(quant, "model.layers.60.self_attn.o_proj"));
  EXPECT_FALSE(is_quantized(quant, "model.layers.60.mlp.shared_experts.up_proj"));
  EXPECT_TRUE(is_quantized(quant, "model.layers.60.mlp.experts.5.up_proj"));
  EXPECT_TRUE(is_quantized(quant, "model.layers.61.self_attn.o_proj"));
}

// A folder may name two for each of many layers, beside patterns in `ignore`.
TEST(IsQuantized, TargetsMayBeMany) {
  const auto parsed = [](int num_targets, int num_ignored) {
    std::string targets, ignored = R"("lm_head")";
    for (int i = 0; i < num_targets; ++i)
      targets += (i == 0 ? "\"" : ",\"") + std::string(R"(re:.*layers\\.)") + std::to_string(i) +
                 R"(\\.mlp\\..*_proj$")";
    for (int i = 0; i < num_ignored; ++i)
      ignored += R"(,"re:.*layers\\.)" + std::to_string(i) + R"(\\.mlp\\.gate$")";
    return parse_hf_config(
        R"({"architectures":["LlamaForCausalLM"],"vocab_size":512,"hidden_size":64,
            "intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,
            "max_position_embeddings":1024,"quantization_config":{
            "quant_method":"compressed-tensors","format":"pack-quantized","ignore":[)" +
        ignored + R"(],"config_groups":{"group_0":{"weights":{"num_bits":4,"type":"int",
            "strategy":"channel","symmetric":true},"targets":[)" +
        targets + "]}}}}");
  };
  const auto model = parsed(122, 60);
  ASSERT_TRUE(model.has_value()) << describe(model.error());
  EXPECT_TRUE(is_quantized(model->quant, "model.layers.0.mlp.up_proj"));
  EXPECT_TRUE(is_quantized(model->quant, "model.layers.121.mlp.up_proj"));
  EXPECT_FALSE(is_quantized(model->quant, "model.layers.122.mlp.up_proj"));
  EXPECT_FALSE(is_quantized(model->quant, "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(is_quantized(model->quant, "lm_head"));
  const auto endless = parsed(257, 0);
  ASSERT_FALSE(endless.has_value());
  EXPECT_THAT(endless.error().message, testing::HasSubstr("more than 256 targets"));
}

TEST(IsQuantized, HostileNamesWithStarsTakeNoTime) {
  const auto long_name = parse_modelopt_config(modelopt_file('"' + std::string(600, '*') + '"'));
  ASSERT_FALSE(long_name.has_value());
  EXPECT_THAT(long_name.error().message, HasSubstr("is not a name with stars that can be read"));
  std::string stars;
  for (int i = 0; i < 200; ++i) stars += "a*";
  const QuantConfig quant = excluding('"' + stars + "b\"");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(is_quantized(quant, std::string(100'000, 'a')));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(1));
}

}  // namespace
}  // namespace hocket
