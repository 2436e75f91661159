// Folders that another program (tools/quantized_model) quantized are compared with the original
// model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "compute/weights/golden_folder_testing.h"
#include "compute/weights/hf_config.h"
#include "compute/weights/loader.h"
#include "compute/weights/safetensors.h"

namespace hocket {
namespace {

struct LoadedGolden {
  std::unique_ptr<WeightSource> source;
  std::optional<WeightLoader> loader;
  PackedWeight q, down;
  ExpertWeights expert;
};
LoadedGolden load(const std::filesystem::path& folder, DType dtype) {
  LoadedGolden out;
  const Result<ModelConfig> config = read_hf_config(folder);
  EXPECT_TRUE(config.has_value()) << config.error().message;
  out.source = *open_model_weights(folder);
  const auto describe = [&](WeightLoader& l) {
    out.q = l.matrix("model.layers.0.self_attn.q_proj.weight", 128, 64);
    const std::string expert = "model.layers.2.mlp.experts.5.";
    out.expert = l.swiglu(
        {expert + "gate_proj.weight", expert + "up_proj.weight", expert + "down_proj.weight"}, 64,
        32);
    l.plain_matrix("model.layers.2.mlp.gate.weight", 8, 64);
    l.plain_matrix("lm_head.weight", 512, 64);
  };
  WeightLoader::Options options{.dtype = dtype, .stored = config->quant};
  WeightLoader by_config = WeightLoader::measuring(options);
  describe(by_config);
  options.source = out.source.get();
  WeightLoader by_headers = WeightLoader::measuring(options);
  describe(by_headers);
  EXPECT_EQ(by_config.bytes(), by_headers.bytes());
  options.bytes = by_headers.bytes();
  out.loader.emplace(*WeightLoader::loading(options));
  describe(*out.loader);
  EXPECT_TRUE(out.loader->status().has_value()) << out.loader->status().error().message;
  return out;
}

double relative_error(const PackedWeight& want, const PackedWeight& got) {
  double error = 0, power = 0;
  for (int64_t i = 0; i < want.data_bytes() / 4; ++i) {
    const double a = static_cast<const float*>(want.data)[i];
    const double b = static_cast<const float*>(got.data)[i];
    error += (a - b) * (a - b), power += a * a;
  }
  return std::sqrt(error / power);
}

TEST(GoldenFormats, QuantizedCopiesAreNearTheirOriginal) {
  const LoadedGolden original = load(kGolden / "qwen3_moe_bf16", DType::f32);
  const std::pair<std::string, double> copies[] = {
      {"awq", 0.12},          {"gptq", 0.12},    {"packed", 0.14}, {"packed_zero", 0.12},
      {"fp8_channel", 0.035}, {"w8a8", 0.015},   {"mxfp4", 0.16},  {"mxfp8", 0.04},
      {"nvfp4", 0.13},        {"modelopt", 0.13}};
  for (const auto& [name, bound] : copies) {
    const LoadedGolden copy = load(kGolden / "quantized" / name, DType::f32);
    const double q = relative_error(original.q, copy.q),
                 gate_up = relative_error(original.expert.gate_up, copy.expert.gate_up),
                 down = relative_error(original.expert.down, copy.expert.down);
    std::printf("%-12s relative error %.4f %.4f %.4f\n", name.c_str(), q, gate_up, down);
    for (const double error : {q, gate_up, down}) {
      EXPECT_LT(error, bound) << name;
      EXPECT_GT(error, 0) << name;
    }
    const LoadedGolden small = load(kGolden / "quantized" / name, DType::bf16);
    EXPECT_NE(small.q.format, WeightFormat::bf16) << name;
    EXPECT_LT(small.q.data_bytes(), 128 * 64 * 2) << name;
  }
}

}  // namespace
}  // namespace hocket
