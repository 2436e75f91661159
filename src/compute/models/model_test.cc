#include "compute/models/model.h"

#include <gtest/gtest.h>

#include "compute/models/family.h"
#include "compute/weights/golden_folder_testing.h"
#include "compute/weights/hf_config.h"
#include "compute/weights/hf_families.h"

namespace hocket {
namespace {

Result<int64_t> measured_bytes(const ModelConfig& config) {
  WeightLoader loader = WeightLoader::measuring({.stored = config.quant});
  HOCKET_TRY_VOID(Model::load(config, loader));
  return loader.bytes();
}

TEST(Model, ExpertsOfALayerAreOfOneFormat) {
  Result<ModelConfig> config = read_hf_config(kGolden / "quantized/awq");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_TRUE(measured_bytes(*config).has_value());

  config->quant.skipped.push_back("model.layers.2.mlp.experts.3.down_proj");
  const Result<int64_t> refused = measured_bytes(*config);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported_model);
  EXPECT_NE(refused.error().message.find("experts 0 and 3 of layer 2"), std::string::npos)
      << refused.error().message;
}

FormatChange widening_of(const ModelConfig& config, DType dtype = DType::bf16) {
  WeightLoader loader = WeightLoader::measuring({.dtype = dtype, .stored = config.quant});
  EXPECT_TRUE(Model::load(config, loader).has_value());
  return loader.format_changes().widened;
}

TEST(Model, ProductsOfSeveralStoredFormatsAreWidened) {
  Result<ModelConfig> config = read_hf_config(kGolden / "quantized/awq");
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(widening_of(*config).num_products, 0);
  EXPECT_EQ(widening_of(*config).kept_bytes, 0);
  config->quant.skipped.push_back("model.layers.0.self_attn.k_proj");
  const FormatChange one = widening_of(*config);
  EXPECT_EQ(one.num_products, 1);
  EXPECT_GT(one.stored_bytes, 0);
  EXPECT_GT(one.kept_bytes, one.stored_bytes);
  EXPECT_EQ(widening_of(*config, DType::f32).num_products, 0) << "float32 was asked for";
}

TEST(Model, StoredMatricesThatAreNeverQuantizedInMemoryAreWidened) {
  Result<ModelConfig> config = read_hf_config(kGolden / "deepseek_v3_fp8");
  ASSERT_TRUE(config.has_value());
  const FormatChange heads = widening_of(*config);
  EXPECT_EQ(heads.num_products, config->num_layers) << "kv_b_proj of each layer";
  EXPECT_GT(heads.kept_bytes, 2 * heads.stored_bytes) << "kv_b_proj is kept twice in part";
  config->quant.skipped.push_back("kv_b_proj");
  EXPECT_EQ(widening_of(*config).num_products, 0);
}

TEST(Model, EveryFamilyWhoseConfigIsReadCanRun) {
  for (const HfFamily& family : hf_families())
    EXPECT_TRUE(find_family(family.architecture).has_value()) << family.architecture;
}

TEST(Model, AnUnknownArchitectureIsRefused) {
  Result<ModelConfig> config = read_hf_config(kGolden / "qwen3");
  ASSERT_TRUE(config.has_value());
  config->architecture = "NobodyForCausalLM";
  const Result<int64_t> refused = measured_bytes(*config);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported_model);
}

}  // namespace
}  // namespace hocket
