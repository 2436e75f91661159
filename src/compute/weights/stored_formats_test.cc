// Each format of files, written by hand (weight_folder_testing.h), becomes packed weights as it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/weights/loader.h"
#include "compute/weights/safetensors.h"
#include "compute/weights/weight_folder_testing.h"

namespace hocket {
namespace {

using QuantLayout = QuantConfig::Layout;
using testing::AllOf;
using testing::HasSubstr;

const QuantConfig kFp8 = {.layout = QuantLayout::fp8_block, .group = 128};

struct StoredCase {
  std::string name;
  QuantConfig quant;
  bool symmetric = true, modelopt = false;
};
std::vector<StoredCase> all_cases() {
  return {{"fp8_block", kFp8},
          {"fp8_tensor", {.layout = QuantLayout::fp8_block, .group = 0}},
          {"fp8_tensor_renamed", {.layout = QuantLayout::fp8_block, .group = 0}, true, true},
          {"fp8_channel", {.layout = QuantLayout::fp8_channel}},
          {"int8_channel", {.layout = QuantLayout::int8_channel}},
          {"awq_32", {.layout = QuantLayout::awq, .group = 32}},
          {"awq_128", {.layout = QuantLayout::awq, .group = 128}},
          {"gptq_128", {.layout = QuantLayout::gptq, .group = 128}},
          {"gptq_v2_64", {.layout = QuantLayout::gptq, .group = 64, .gptq_zeros_less_1 = false}},
          {"gptq_all", {.layout = QuantLayout::gptq, .group = 0}},
          {"packed_32", {.layout = QuantLayout::packed, .group = 32}},
          {"packed_all", {.layout = QuantLayout::packed, .group = 0}},
          {"packed_asymmetric", {.layout = QuantLayout::packed, .group = 128}, false},
          {"mxfp4", {.layout = QuantLayout::mxfp4}},
          {"mxfp8", {.layout = QuantLayout::mxfp8}},
          {"nvfp4", {.layout = QuantLayout::nvfp4}},
          {"nvfp4_modelopt", {.layout = QuantLayout::nvfp4}, true, true}};
}
WeightFormat format_of(const QuantConfig& quant) {
  if (quant.layout == QuantLayout::fp8_block || quant.layout == QuantLayout::fp8_channel)
    return WeightFormat::fp8;
  if (quant.layout == QuantLayout::mxfp4) return WeightFormat::mxfp4;
  if (quant.layout == QuantLayout::mxfp8) return WeightFormat::mxfp8;
  if (quant.layout == QuantLayout::nvfp4) return WeightFormat::nvfp4;
  return quant.layout == QuantLayout::int8_channel ? WeightFormat::int8 : WeightFormat::int4;
}
TestMatrix matrix_of(const StoredCase& c, const std::string& module, int n, int k) {
  return {module, n, k, c.quant, c.symmetric, c.modelopt};
}

// A loader with the memory of its weights, and the source that it read.
struct LoadOutcome {
  std::unique_ptr<WeightSource> source;
  std::optional<WeightLoader> loader;
  Result<void> status;
};
// Measures `describe` from the config alone, then from the headers, then loads: all three must give
// the same bytes.
template <class Describe>
LoadOutcome load(const std::filesystem::path& folder, WeightLoader::Options options,
                 Describe describe) {
  LoadOutcome out;
  auto opened = open_model_weights(folder);
  EXPECT_TRUE(opened.has_value()) << opened.error().message;
  out.source = *std::move(opened);
  WeightLoader by_config = WeightLoader::measuring(options);
  describe(by_config);
  options.source = out.source.get();
  WeightLoader by_headers = WeightLoader::measuring(options);
  describe(by_headers);
  out.status = by_headers.status();
  if (!out.status) return out;
  EXPECT_TRUE(by_config.status().has_value());
  EXPECT_EQ(by_config.bytes(), by_headers.bytes());
  options.bytes = by_headers.bytes();
  auto loader = WeightLoader::loading(options);
  EXPECT_TRUE(loader.has_value());
  describe(*loader);
  out.status = loader->status();
  if (out.status) {
    EXPECT_EQ(loader->bytes(), by_headers.bytes());
  }
  out.loader.emplace(*std::move(loader));
  return out;
}

template <class T>
float plain_at(const PackedWeight& w, int row, int col) {
  return to_float(w.panel_as<T>(0)[packed_offset(row, col, w.k_blocks())]);
}
// Expects row `row` of `w` to equal row `from` of `m` in numbers, scales and zeros.
void expect_row(const PackedWeight& w, int row, const TestMatrix& m, int from) {
  const Unpacked got{w};
  for (int col = 0; col < m.k; ++col) {
    ASSERT_EQ(got.number(row, col), m.number(from, col)) << m.module << " " << row << " " << col;
    ASSERT_EQ(got.scale(row, col), m.scale(from, col / m.group())) << m.module << " " << row;
    ASSERT_EQ(got.value(row, col), m.value(from, col)) << m.module << " " << row;
    if (w.zeros != nullptr) {
      ASSERT_EQ(got.zero(row, col), m.zero(from, col / m.group())) << m.module << " " << row;
    }
  }
}

class StoredFormat : public testing::TestWithParam<StoredCase> {};
INSTANTIATE_TEST_SUITE_P(All, StoredFormat, testing::ValuesIn(all_cases()),
                         [](const auto& i) { return i.param.name; });

TEST_P(StoredFormat, AMatrixKeepsItsNumbersScalesAndZeros) {
  for (const auto& [n, k] : {std::pair(136, 320), std::pair(32, 128), std::pair(300, 160)}) {
    const TestMatrix m = matrix_of(GetParam(), "model.layers.0.x", n, k);
    TestFolder folder;
    add_quantized(folder, m);
    folder.write_file();
    for (const int num_workers : {1, 2}) {
      WorkerPool workers({.num_workers = num_workers, .cpus = {}});
      PackedWeight w;
      const LoadOutcome loaded =
          load(folder.path(), {.stored = m.quant, .workers = &workers},
               [&](WeightLoader& l) { w = l.matrix(m.module + ".weight", n, k); });
      ASSERT_TRUE(loaded.status.has_value()) << loaded.status.error().message;
      EXPECT_EQ(w.format, format_of(m.quant));
      for (int row = 0; row < n; ++row) expect_row(w, row, m, row);
      for (int row = n; row < w.panels() * 16; ++row) {  // padding computes to 0
        EXPECT_EQ(Unpacked{w}.number(row, k - 1), 0);
        EXPECT_EQ(Unpacked{w}.scale(row, k - 1), 0.0f);
      }
    }
  }
}

TEST_P(StoredFormat, InFloat32ItIsDequantizedExactly) {
  const TestMatrix m = matrix_of(GetParam(), "model.layers.0.x", 136, 320);
  TestFolder folder;
  add_quantized(folder, m);
  folder.write_file();
  PackedWeight w;
  const LoadOutcome loaded =
      load(folder.path(), {.dtype = DType::f32, .stored = m.quant},
           [&](WeightLoader& l) { w = l.matrix(m.module + ".weight", m.n, m.k); });
  ASSERT_TRUE(loaded.status.has_value()) << loaded.status.error().message;
  ASSERT_EQ(w.format, WeightFormat::f32);
  EXPECT_EQ(w.scales, nullptr);
  for (int row = 0; row < m.n; ++row)
    for (int col = 0; col < m.k; ++col)
      ASSERT_EQ(plain_at<float>(w, row, col), m.value(row, col)) << row << " " << col;
}

TEST_P(StoredFormat, PartsOfOneProductStandWhereItSays) {
  const TestMatrix q = matrix_of(GetParam(), "q", 24, 192), k = matrix_of(GetParam(), "k", 8, 192),
                   v = matrix_of(GetParam(), "v", 40, 192);
  const int width = is_mx(format_of(q.quant)) ? 64 : 40;  // a multiple of mx groups
  const TestMatrix gate = matrix_of(GetParam(), "gate", width, 192),
                   up = matrix_of(GetParam(), "up", width, 192),
                   down = matrix_of(GetParam(), "down", 192, width);
  TestFolder folder;
  for (const TestMatrix& m : {q, k, v, gate, up, down}) add_quantized(folder, m);
  folder.write_file();
  const WeightLoader::Part parts[] = {{"q.weight", 24}, {"k.weight", 8}, {"v.weight", 40}};
  PackedWeight qkv;
  ExpertWeights expert;
  const LoadOutcome loaded = load(folder.path(), {.stored = q.quant}, [&](WeightLoader& l) {
    qkv = l.stacked(parts, 192);
    expert = l.swiglu({"gate.weight", "up.weight", "down.weight"}, 192, width);
  });
  ASSERT_TRUE(loaded.status.has_value()) << loaded.status.error().message;
  for (int row = 0; row < 72; ++row)
    expect_row(qkv, row,
               row < 24   ? q
               : row < 32 ? k
                          : v,
               row - (row < 24   ? 0
                      : row < 32 ? 24
                                 : 32));
  for (int row = 0; row < width; ++row) {
    expect_row(expert.gate_up, row / 16 * 32 + row % 16, gate, row);
    expect_row(expert.gate_up, row / 16 * 32 + 16 + row % 16, up, row);
  }
  for (int row = 0; row < 192; ++row) expect_row(expert.down, row, down, row);
}

TEST_P(StoredFormat, WhatMustBePlainIsDequantizedAndRoundedOnce) {
  const int heads = 3, nope = 24, value = 16, rank = 64;
  const TestMatrix m = matrix_of(GetParam(), "kv_b_proj", heads * (nope + value), rank);
  TestFolder folder;
  add_quantized(folder, m);
  folder.write_file();
  PackedWeight plain;
  LatentHeadWeights w;
  WorkerPool workers({.num_workers = 2, .cpus = {}});
  const LoadOutcome loaded =
      load(folder.path(), {.stored = m.quant, .workers = &workers}, [&](WeightLoader& l) {
        plain = l.plain_matrix("kv_b_proj.weight", m.n, m.k);
        w = l.latent_heads("kv_b_proj.weight", heads, nope, value, rank);
      });
  ASSERT_TRUE(loaded.status.has_value()) << loaded.status.error().message;
  ASSERT_EQ(plain.format, WeightFormat::bf16);
  const auto want = [&](int row, int col) { return to_float(to_bf16(m.value(row, col))); };
  for (int row = 0; row < m.n; ++row)
    for (int col = 0; col < rank; ++col) ASSERT_EQ(plain_at<Bf16>(plain, row, col), want(row, col));
  for (int h = 0; h < heads; ++h)
    for (int col = 0; col < rank; ++col) {
      const int first = h * (nope + value);
      for (int i = 0; i < nope; ++i) {
        ASSERT_EQ(plain_at<Bf16>(w.key_up[h], i, col), want(first + i, col));
        ASSERT_EQ(plain_at<Bf16>(w.key_absorb[h], col, i), want(first + i, col));
      }
      for (int i = 0; i < value; ++i)
        ASSERT_EQ(plain_at<Bf16>(w.value_up[h], i, col), want(first + nope + i, col));
    }
}

TEST_P(StoredFormat, RandomWeightsHaveTheFormatOfTheConfig) {
  const QuantConfig quant = GetParam().quant;
  PackedWeight one, two;
  const auto make = [&](WorkerPool* workers, PackedWeight& w) {
    const auto describe = [&](WeightLoader& l) { w = l.matrix("a.b.weight", 72, 320); };
    WeightLoader::Options options{.seed = 5, .stored = quant, .workers = workers};
    WeightLoader plan = WeightLoader::measuring(options);
    describe(plan);
    options.bytes = plan.bytes();
    auto loader = WeightLoader::loading(options);
    describe(*loader);
    EXPECT_TRUE(loader->status() && loader->bytes() == plan.bytes());
    return *std::move(loader);
  };
  WorkerPool pool({.num_workers = 2, .cpus = {}});
  const WeightLoader a = make(nullptr, one), b = make(&pool, two);
  EXPECT_EQ(one.format, format_of(quant));
  EXPECT_EQ(std::memcmp(one.data, two.data, a.bytes()), 0);
  double power = 0;
  for (int row = 0; row < 72; ++row)
    for (int col = 0; col < 320; ++col) power += std::pow(Unpacked{one}.value(row, col), 2);
  EXPECT_NEAR(std::sqrt(power / (72 * 320)), 0.05, 0.002);  // deviation as in random_weights.h
}

TEST(StoredFormats, DifferentFormatsInOneProductBecomeBf16) {
  const TestMatrix q{"q", 24, 192, kFp8, true};
  TestFolder folder;
  add_quantized(folder, q);
  folder.add("k.weight", "BF16", {8, 192}, std::vector<uint16_t>(8 * 192, 0x3fc0));
  folder.write_file();
  const WeightLoader::Part parts[] = {{"q.weight", 24}, {"k.weight", 8}};
  PackedWeight w;
  QuantConfig quant = q.quant;
  quant.skipped = {"k"};
  const LoadOutcome loaded =
      load(folder.path(), {.stored = quant}, [&](WeightLoader& l) { w = l.stacked(parts, 192); });
  ASSERT_TRUE(loaded.status.has_value()) << loaded.status.error().message;
  ASSERT_EQ(w.format, WeightFormat::bf16);
  for (int col = 0; col < 192; ++col) {
    EXPECT_EQ(plain_at<Bf16>(w, 23, col), to_float(to_bf16(q.value(23, col))));
    EXPECT_EQ(plain_at<Bf16>(w, 24, col), 1.5f);
  }
}

TEST(StoredFormats, Int8ZeroPointsAreKept) {
  TestMatrix m{"x", 16, 64, {.layout = QuantLayout::int8_channel}, true};
  TestFolder folder;
  add_quantized(folder, m);
  std::vector<int8_t> zeros;
  for (int row = 0; row < 16; ++row) zeros.push_back(static_cast<int8_t>(10 * row - 80));
  folder.add("x.weight_zero_point", "I8", {16, 1}, zeros);
  folder.write_file();
  PackedWeight w;
  const LoadOutcome loaded = load(folder.path(), {.stored = m.quant},
                                  [&](WeightLoader& l) { w = l.matrix("x.weight", 16, 64); });
  ASSERT_TRUE(loaded.status.has_value()) << loaded.status.error().message;
  for (int row = 0; row < 16; ++row) EXPECT_EQ(Unpacked{w}.zero(row, 63), 10 * row + 48);
}

// Returns the error message of loading x [n, k].
std::string error_of(TestFolder& folder, const QuantConfig& quant, int n, int k) {
  folder.write_file();
  const LoadOutcome loaded =
      load(folder.path(), {.stored = quant}, [&](WeightLoader& l) { l.matrix("x.weight", n, k); });
  return loaded.status ? "no error" : loaded.status.error().message;
}

TEST(StoredFormats, WhatIsMissingIsNamed) {
  const QuantConfig int8{.layout = QuantLayout::int8_channel},
      awq{.layout = QuantLayout::awq, .group = 32};
  TestFolder a, b, c, d;
  a.add("x.weight", "F8_E4M3", {16, 32}, std::vector<uint8_t>(512));
  EXPECT_THAT(error_of(a, kFp8, 16, 32), AllOf(HasSubstr("x.weight is stored as float8_e4m3"),
                                               HasSubstr("x.weight_scale_inv is missing")));
  b.add("x.weight", "I8", {16, 32}, std::vector<uint8_t>(512));
  EXPECT_THAT(error_of(b, int8, 16, 32), HasSubstr("x.weight_scale is missing"));
  c.add("x.qzeros", "I32", {1, 2}, std::vector<uint32_t>(2));
  EXPECT_THAT(error_of(c, awq, 16, 32), HasSubstr("no tensor \"x.qweight\""));
  d.add("x.qweight", "I32", {32, 2}, std::vector<uint32_t>(64));
  d.add("x.scales", "F16", {1, 16}, std::vector<uint16_t>(16));
  EXPECT_THAT(error_of(d, awq, 16, 32), HasSubstr("no tensor \"x.qzeros\""));
}

TEST(StoredFormats, WrongShapesAndTypesAreNamed) {
  const QuantConfig packed{.layout = QuantLayout::packed, .group = 32};
  TestFolder a, b, c, d;
  a.add("x.weight", "F8_E4M3", {130, 32}, std::vector<uint8_t>(130 * 32));
  a.add("x.weight_scale_inv", "F32", {1, 1}, std::vector<float>{1});
  EXPECT_EQ(error_of(a, kFp8, 130, 32),
            "x.weight_scale_inv has the shape [1, 1], but config.json asks for [2, 1]");
  b.add("x.weight", "F8_E5M2", {16, 32}, std::vector<uint8_t>(512));
  b.add("x.weight_scale_inv", "F32", {1, 1}, std::vector<float>{1});
  EXPECT_EQ(error_of(b, kFp8, 16, 32), "x.weight is stored as float8_e5m2, not as float8_e4m3");
  c.add("x.weight_packed", "I32", {16, 8}, std::vector<uint32_t>(128));
  c.add("x.weight_scale", "I8", {16, 2}, std::vector<int8_t>(32));
  EXPECT_EQ(error_of(c, packed, 16, 64),
            "x.weight_scale is stored as int8, not as bfloat16, float16 or float32");
  d.add("x.weight_packed", "I32", {16, 8}, std::vector<uint32_t>(128));
  d.add("x.weight_scale", "F32", {16, 2}, std::vector<float>(32));
  d.add("x.weight_shape", "I64", {2}, std::vector<int64_t>{16, 60});
  EXPECT_THAT(error_of(d, packed, 16, 64), HasSubstr("x.weight_shape is [16, 60]"));
}

TEST(StoredFormats, NaNInFloat8IsRefused) {
  for (const uint8_t nan : {0x7f, 0xff})
    for (const DType dtype : {DType::bf16, DType::f32}) {
      TestFolder folder;
      std::vector<uint8_t> numbers(32 * 32, 0x38);
      numbers[31 * 32 + 5] = nan;
      folder.add("x.weight", "F8_E4M3", {32, 32}, numbers);
      folder.add("x.weight_scale_inv", "F32", {1, 1}, std::vector<float>{1});
      folder.write_file();
      const LoadOutcome loaded = load(folder.path(), {.dtype = dtype, .stored = kFp8},
                                      [](WeightLoader& l) { l.matrix("x.weight", 32, 32); });
      ASSERT_FALSE(loaded.status.has_value());
      EXPECT_EQ(loaded.status.error().message,
                "x.weight holds a float8 that is not a number, or a scale that is not finite");
    }
}

// They are rounded to the nearest float16, ties to even, and reported if that changes them.
TEST(StoredFormats, ScalesOfInt4AreRounded) {
  const QuantConfig quant{.layout = QuantLayout::packed, .group = 32};
  const auto folder_of = [](TestFolder& folder, const char* type, const auto& scales) {
    folder.add("x.weight_packed", "I32", {1, 8}, std::vector<uint32_t>(8));
    folder.add("x.weight_scale", type, {1, 2}, scales);
  };
  const auto load_int4 = [&](TestFolder& folder, PackedWeight& w) {
    folder.write_file();
    return load(folder.path(), {.stored = quant},
                [&](WeightLoader& l) { w = l.matrix("x.weight", 1, 64); });
  };
  TestFolder wide, exact, small, beyond;
  PackedWeight w;
  folder_of(wide, "F32", std::vector<float>{1 + 0x1p-11f, 1 + 3 * 0x1p-11f});
  const LoadOutcome rounded = load_int4(wide, w);
  ASSERT_TRUE(rounded.status.has_value());
  EXPECT_EQ(scale_at(w.format, w.scales, 0), 1.0f);
  EXPECT_EQ(scale_at(w.format, w.scales, kPanelN), 1 + 0x1p-9f);
  EXPECT_TRUE(rounded.loader->rounded_scales().from_float32);
  EXPECT_EQ(rounded.loader->rounded_scales().changed, 2);
  folder_of(exact, "F16", std::vector<uint16_t>{0x3c01, 0x0001});
  const LoadOutcome kept = load_int4(exact, w);
  ASSERT_TRUE(kept.status.has_value());
  EXPECT_EQ(scale_at(w.format, w.scales, 0), 1 + 0x1p-10f);
  EXPECT_EQ(scale_at(w.format, w.scales, kPanelN), 0x1p-24f);
  EXPECT_FALSE(kept.loader->rounded_scales().from_float32);
  EXPECT_EQ(kept.loader->rounded_scales().changed, 0);
  // 2^-17 and 2^-18, each with the lowest digit of bfloat16: float16 ends at 2^-24.
  folder_of(small, "BF16", std::vector<uint16_t>{0x3701, 0x3681});
  const LoadOutcome cut = load_int4(small, w);
  ASSERT_TRUE(cut.status.has_value());
  EXPECT_EQ(scale_at(w.format, w.scales, 0), 0x1p-17f + 0x1p-24f);
  EXPECT_EQ(scale_at(w.format, w.scales, kPanelN), 0x1p-18f);
  EXPECT_FALSE(cut.loader->rounded_scales().from_float32);
  EXPECT_EQ(cut.loader->rounded_scales().changed, 1);
  folder_of(beyond, "F32", std::vector<float>{65520, 1});
  EXPECT_THAT(error_of(beyond, quant, 1, 64),
              HasSubstr("a scale that is not finite, or that is too"));
}

TEST(StoredFormats, ColumnsOutOfOrderAreRefused) {
  TestFolder folder;
  folder.add("x.qweight", "I32", {8, 16}, std::vector<uint32_t>(128));
  folder.add("x.qzeros", "I32", {2, 2}, std::vector<uint32_t>(4));
  folder.add("x.scales", "F16", {2, 16}, std::vector<uint16_t>(32));
  std::vector<int32_t> order(64);
  for (int i = 0; i < 64; ++i) order[i] = i % 2;
  folder.add("x.g_idx", "I32", {64}, order);
  EXPECT_THAT(error_of(folder, {.layout = QuantLayout::gptq, .group = 32}, 16, 64),
              AllOf(HasSubstr("act-order"), HasSubstr("column 1 is of group 1, not 0")));
}

TEST(StoredFormats, GroupsAndDepthsThatNoKernelHasAreRefused) {
  TestFolder a, b;
  a.add("x.qweight", "I32", {96, 2}, std::vector<uint32_t>(192));
  EXPECT_THAT(error_of(a, {.layout = QuantLayout::awq, .group = 48}, 16, 96),
              HasSubstr("groups of 48 values"));
  const int k = 65600;
  b.add("x.weight", "I8", {1, k}, std::vector<int8_t>(k));
  b.add("x.weight_scale", "F32", {1, 1}, std::vector<float>{1});
  EXPECT_THAT(error_of(b, {.layout = QuantLayout::int8_channel}, 1, k), HasSubstr("65600 inputs"));
}

}  // namespace
}  // namespace hocket
