// Unquantized files that are quantized while they are loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "compute/weights/loader.h"
#include "compute/weights/random_weights.h"
#include "compute/weights/safetensors.h"
#include "compute/weights/weight_folder_testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;

constexpr int kRows = 72, kCols = 320;

std::vector<float> values_of(const std::string& name) {
  std::vector<float> values(kRows * kCols);
  random_rows(3, name, 0, {values.data(), kRows, kCols});
  return values;
}

struct LoadedMatrices {
  std::unique_ptr<WeightSource> source;
  std::optional<WeightLoader> loader;
  PackedWeight x, embedding, gate;
  LatentHeadWeights heads;
};
// Writes a folder with x, an embedding, a gate and kv_b, all of the given type.
void write(TestFolder& folder, const std::string& type) {
  for (const std::string name : {"x.weight", "embed.weight", "gate.weight", "kv_b.weight"}) {
    const std::vector<float> values = values_of(name);
    if (type == "F32") {
      folder.add(name, type, {kRows, kCols}, values);
    } else {
      std::vector<Bf16> halves;
      for (const float v : values) halves.push_back(to_bf16(v));
      folder.add(name, type, {kRows, kCols}, halves);
    }
  }
  folder.write_file();
}
LoadedMatrices load(const TestFolder& folder, WeightLoader::Options options) {
  LoadedMatrices out;
  out.source = *open_model_weights(folder.path());
  options.source = out.source.get();
  const auto describe = [&](WeightLoader& l) {
    out.x = l.matrix("x.weight", kRows, kCols);
    out.embedding = l.plain_matrix("embed.weight", kRows, kCols);
    out.gate = l.plain_matrix("gate.weight", kRows, kCols);
    out.heads = l.latent_heads("kv_b.weight", 2, 20, 16, kCols);
  };
  WeightLoader plan = WeightLoader::measuring(options);
  describe(plan);
  options.bytes = plan.bytes();
  out.loader.emplace(*WeightLoader::loading(options));
  describe(*out.loader);
  if (out.loader->status()) {
    EXPECT_EQ(out.loader->bytes(), plan.bytes());
  }
  return out;
}

TEST(OnTheFly, OnlyTheProductsOfLayersAreQuantized) {
  TestFolder folder;
  write(folder, "BF16");
  for (const WeightFormat format : {WeightFormat::int8, WeightFormat::int4}) {
    const LoadedMatrices loaded = load(folder, {.quantize = format});
    ASSERT_TRUE(loaded.loader->status().has_value());
    EXPECT_EQ(loaded.x.format, format);
    EXPECT_EQ(loaded.x.group, format == WeightFormat::int8 ? 320 : 64);
    EXPECT_EQ(loaded.embedding.format, WeightFormat::bf16);
    EXPECT_EQ(loaded.gate.format, WeightFormat::bf16);
    EXPECT_EQ(loaded.heads.key_up[1].format, WeightFormat::bf16);
  }
}

TEST(OnTheFly, TheNumbersAreNearTheFiles) {
  for (const std::string type : {"F32", "BF16"})
    for (const WeightFormat format : {WeightFormat::int8, WeightFormat::int4}) {
      TestFolder folder;
      write(folder, type);
      const LoadedMatrices loaded = load(folder, {.quantize = format});
      const Unpacked got{loaded.x};
      const std::vector<float> want = values_of("x.weight");
      double error = 0, power = 0;
      for (int row = 0; row < kRows; ++row)
        for (int col = 0; col < kCols; ++col) {
          const float x =
              static_cast<float>(got.number(row, col) - got.zero(row, col)) * got.scale(row, col);
          error += std::pow(x - want[row * kCols + col], 2),
              power += std::pow(want[row * kCols + col], 2);
        }
      EXPECT_LT(std::sqrt(error / power), format == WeightFormat::int8 ? 0.01 : 0.09);
    }
}

TEST(OnTheFly, WorkersDoNotMatter) {
  TestFolder folder;
  write(folder, "F32");
  WorkerPool two({.num_workers = 2, .cpus = {}});
  LoadedMatrices a = load(folder, {.quantize = WeightFormat::int4});
  LoadedMatrices b = load(folder, {.quantize = WeightFormat::int4, .workers = &two});
  const Buffer am = a.loader->take_memory(), bm = b.loader->take_memory();
  ASSERT_EQ(am.bytes(), bm.bytes());
  EXPECT_EQ(std::memcmp(am.data(), bm.data(), am.bytes()), 0);
}

TEST(OnTheFly, Float32TakesPrecedence) {
  TestFolder folder;
  write(folder, "F32");
  EXPECT_EQ(load(folder, {.dtype = DType::f32, .quantize = WeightFormat::int8}).x.format,
            WeightFormat::f32);
}

TEST(OnTheFly, WhatIsNotFiniteIsRefusedByName) {
  TestFolder folder;
  std::vector<float> values(32 * 32, 1.0f);
  values[77] = std::numeric_limits<float>::infinity();
  folder.add("x.weight", "F32", {32, 32}, values);
  folder.write_file();
  const auto source = *open_model_weights(folder.path());
  WeightLoader::Options options{.source = source.get(), .quantize = WeightFormat::int8};
  WeightLoader plan = WeightLoader::measuring(options);
  plan.matrix("x.weight", 32, 32);
  options.bytes = plan.bytes();
  auto loader = WeightLoader::loading(options);
  loader->matrix("x.weight", 32, 32);
  ASSERT_FALSE(loader->status().has_value());
  EXPECT_THAT(loader->status().error().message, HasSubstr("x.weight holds an infinity or NaN"));
}

}  // namespace
}  // namespace hocket
