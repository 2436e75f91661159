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

TEST(Model, ProductsOfSeveralStoredFormatsAreCounted) {
  Result<ModelConfig> config = read_hf_config(kGolden / "quantized/awq");
  ASSERT_TRUE(config.has_value());
  for (const int expected : {0, 1}) {
    WeightLoader loader = WeightLoader::measuring({.stored = config->quant});
    ASSERT_TRUE(Model::load(*config, loader).has_value());
    EXPECT_EQ(loader.num_mixed(), expected);
    config->quant.skipped.push_back("model.layers.0.self_attn.k_proj");
  }
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
