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
#include "compute/weights/weight_folder_testing.h"

namespace hocket {
namespace {

struct LoadedGolden {
  std::unique_ptr<WeightSource> source;
  std::optional<WeightLoader> loader;
  PackedWeight q;
  ExpertWeights expert;
};
LoadedGolden load(const std::filesystem::path& folder, DType dtype,
                  WeightFormat quantize = WeightFormat::bf16) {
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
  WeightLoader::Options options{.dtype = dtype, .stored = config->quant, .quantize = quantize};
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

// Returns [n, k] of a matrix that is loaded in float32.
std::vector<float> values_of_panels(const PackedWeight& w) {
  std::vector<float> out(static_cast<size_t>(w.n) * w.k);
  const auto* const packed = static_cast<const float*>(w.data);
  for (int row = 0; row < w.n; ++row)
    for (int col = 0; col < w.k; ++col)
      out[int64_t{row} * w.k + col] =
          packed[packed_offset(row, col, (w.k + kBlockK - 1) / kBlockK)];
  return out;
}

std::string_view bytes_of(const void* data, int64_t bytes) {
  return {static_cast<const char*>(data), static_cast<size_t>(bytes)};
}

// --quantization rounds what a float32 copy of the folder holds, bit for bit.
TEST(GoldenFormats, QuantizingStoredFormatsIsQuantizingTheirNumbers) {
  for (const std::string name : {"fp8_channel", "mxfp4", "mxfp8", "nvfp4", "modelopt", "w8a8"})
    for (const WeightFormat to : {WeightFormat::int8, WeightFormat::int4}) {
      if (name == "w8a8" && to == WeightFormat::int8) continue;  // it is int8
      const std::filesystem::path files = kGolden / "quantized" / name;
      const LoadedGolden wide = load(files, DType::f32), got = load(files, DType::bf16, to);
      EXPECT_EQ(got.loader->format_changes().requantized.num_products, 3) << name;
      EXPECT_FALSE(got.loader->rounded_scales().from_float32) << name;
      for (const auto& [values, packed] :
           {std::pair(wide.q, got.q), std::pair(wide.expert.down, got.expert.down)}) {
        TestFolder folder;
        folder.add("x.weight", "F32", {values.n, values.k}, values_of_panels(values));
        folder.write_file();
        const auto source = *open_model_weights(folder.path());
        WeightLoader::Options options{.source = source.get(), .quantize = to};
        WeightLoader plan = WeightLoader::measuring(options);
        plan.matrix("x.weight", values.n, values.k);
        options.bytes = plan.bytes();
        WeightLoader loader = *WeightLoader::loading(options);
        const PackedWeight want = loader.matrix("x.weight", values.n, values.k);
        ASSERT_TRUE(loader.status().has_value()) << name;
        ASSERT_EQ(packed.format, to) << name;
        EXPECT_EQ(packed.group, want.group);
        EXPECT_EQ(bytes_of(packed.data, packed.data_bytes()),
                  bytes_of(want.data, want.data_bytes()));
        EXPECT_EQ(bytes_of(packed.scales, packed.scale_bytes()),
                  bytes_of(want.scales, want.scale_bytes()));
        EXPECT_EQ(bytes_of(packed.zeros, packed.zero_bytes()),
                  bytes_of(want.zeros, want.zero_bytes()));
      }
    }
}

}  // namespace
}  // namespace hocket
