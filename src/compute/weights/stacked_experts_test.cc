// Experts in one tensor are read like experts in a tensor each, in both orders and in every type.
#include "compute/weights/stacked_experts.h"

#include <gtest/gtest.h>

#include "compute/weights/matrix_reader.h"
#include "compute/weights/weight_folder_testing.h"

namespace hocket {
namespace {

// The layouts in files; interleaved: inputs first, and gates and ups alternate.
enum class Stacked : uint8_t { outputs_first, inputs_first, interleaved, apart };

constexpr int kNumExperts = 3, kHidden = 5, kWidth = 70;  // more rows than are turned at once

// The element of expert e's matrix of `part`: gate 0, up 1, down 2. Exact in every type.
float element(int e, int part, int row, int col) {
  return static_cast<float>((e * 31 + part * 17 + row * 7 + col * 3) % 101 - 50);
}

// Returns [experts, parts of n x k] as the files hold them.
std::vector<float> stacked(Stacked form, int first_part, int num_parts, int n, int k) {
  std::vector<float> all;
  const int outputs = num_parts * n;
  const auto add = [&](int e, int output, int input) {
    const bool alternate = form == Stacked::interleaved;
    const int part = alternate ? output % num_parts : output / n;
    const int row = alternate ? output / num_parts : output % n;
    all.push_back(element(e, first_part + part, row, input));
  };
  for (int e = 0; e < kNumExperts; ++e) {
    if (form == Stacked::outputs_first) {
      for (int o = 0; o < outputs; ++o)
        for (int i = 0; i < k; ++i) add(e, o, i);
    } else {
      for (int i = 0; i < k; ++i)
        for (int o = 0; o < outputs; ++o) add(e, o, i);
    }
  }
  return all;
}

void add_stacked(TestFolder& folder, Stacked form, const std::string& name, int first_part,
                 int num_parts, int n, int k) {
  const bool rows = form == Stacked::outputs_first;
  const int outputs = num_parts * n;
  folder.add(name, "F32", {kNumExperts, rows ? outputs : k, rows ? k : outputs},
             stacked(form, first_part, num_parts, n, k));
}

MoeConfig config_of(Stacked form) {
  MoeConfig moe;
  moe.num_experts = kNumExperts;
  moe.stacked = form == Stacked::outputs_first ? MoeConfig::Stacked::outputs_first
                : form == Stacked::apart       ? MoeConfig::Stacked::apart
                                               : MoeConfig::Stacked::inputs_first;
  moe.interleaved = form == Stacked::interleaved;
  return moe;
}

std::unique_ptr<WeightSource> opened(TestFolder& folder, Stacked form) {
  folder.write_file();
  auto source = open_model_weights(folder.path(), config_of(form));
  EXPECT_TRUE(source.has_value()) << describe(source.error());
  return source ? *std::move(source) : nullptr;
}

class StackedForms : public ::testing::TestWithParam<Stacked> {};

TEST_P(StackedForms, EachExpertIsFoundByItsName) {
  TestFolder folder;
  add_stacked(folder, GetParam(), "m.experts.gate_up_proj", 0, 2, kWidth, kHidden);
  add_stacked(folder, GetParam(), "m.experts.down_proj", 2, 1, kHidden, kWidth);
  const auto source = opened(folder, GetParam());
  ASSERT_NE(source, nullptr);
  const char* const names[] = {"gate_proj", "up_proj", "down_proj"};
  for (int e = 0; e < kNumExperts; ++e)
    for (int part = 0; part < 3; ++part) {
      const std::string name = "m.experts." + std::to_string(e) + "." + names[part] + ".weight";
      EXPECT_TRUE(source->has(name));
      const int n = part == 2 ? kHidden : kWidth, k = part == 2 ? kWidth : kHidden;
      const auto reader = MatrixReader::open(*source, {}, name, n, k);
      ASSERT_TRUE(reader.has_value()) << describe(reader.error());
      std::vector<float> memory(n * k);
      const View<float> rows(memory.data(), n - 1, k);
      reader->read(1, rows);
      for (int r = 0; r < rows.rows; ++r)
        for (int c = 0; c < k; ++c) ASSERT_EQ(rows.row(r)[c], element(e, part, r + 1, c));
      reader->done_with(0, n);
    }
}

// Gate and up alternate: output 2 i is row i of gate, output 2 i + 1 row i of up.
TEST_P(StackedForms, InterleavedOutputsAreTakenApart) {
  TestFolder folder;
  const bool rows_first = GetParam() == Stacked::outputs_first;
  std::vector<float> all;
  for (int e = 0; e < kNumExperts; ++e)
    for (int i = 0; i < 2 * kWidth * kHidden; ++i) {
      const int output = rows_first ? i / kHidden : i % (2 * kWidth);
      const int input = rows_first ? i % kHidden : i / (2 * kWidth);
      all.push_back(element(e, output % 2, output / 2, input));
    }
  folder.add("m.experts.gate_up_proj", "F32",
             {kNumExperts, rows_first ? 2 * kWidth : kHidden, rows_first ? kHidden : 2 * kWidth},
             all);
  folder.write_file();
  MoeConfig moe = config_of(GetParam());
  moe.interleaved = true;
  const auto source = *open_model_weights(folder.path(), moe);
  for (int e = 0; e < kNumExperts; ++e)
    for (int part = 0; part < 2; ++part) {
      const std::string name =
          "m.experts." + std::to_string(e) + (part == 0 ? ".gate_proj.weight" : ".up_proj.weight");
      const auto reader = MatrixReader::open(*source, {}, name, kWidth, kHidden);
      ASSERT_TRUE(reader.has_value()) << describe(reader.error());
      std::vector<float> memory(kWidth * kHidden);
      const View<float> rows(memory.data(), kWidth - 1, kHidden);
      reader->read(1, rows);
      for (int r = 0; r < rows.rows; ++r)
        for (int c = 0; c < kHidden; ++c) ASSERT_EQ(rows.row(r)[c], element(e, part, r + 1, c));
      reader->done_with(0, kWidth);
    }
}

// One scale an expert is for its gate and its up.
TEST(StackedExperts, InFloat8HaveAScaleEach) {
  constexpr uint8_t kOne = 0x38;
  TestFolder folder;
  folder.add("m.experts.gate_up_proj", "F8_E4M3", {kNumExperts, 2 * kWidth, kHidden},
             std::vector<uint8_t>(kNumExperts * 2 * kWidth * kHidden, kOne));
  folder.add("m.experts.gate_up_proj_scale_inv", "F32", {kNumExperts, 1, 1},
             std::vector<float>{1, 2, 3});
  folder.write_file();
  const auto source = *open_model_weights(folder.path(), config_of(Stacked::outputs_first));
  for (int e = 0; e < kNumExperts; ++e)
    for (const char* part : {".gate_proj.weight", ".up_proj.weight"}) {
      const std::string name = "m.experts." + std::to_string(e) + part;
      const auto reader = MatrixReader::open(*source, {.layout = QuantConfig::Layout::fp8_block},
                                             name, kWidth, kHidden);
      ASSERT_TRUE(reader.has_value()) << describe(reader.error());
      std::vector<uint8_t> numbers(kWidth * kHidden);
      std::vector<float> scales(kWidth);
      const ScaledRows rows = {.format = reader->format(),
                               .numbers = {numbers.data(), kWidth, kHidden},
                               .scales = {scales.data(), kWidth, 1},
                               .zeros = {},
                               .column_scales = {}};
      ASSERT_TRUE(reader->read(0, rows));
      for (const uint8_t number : numbers) ASSERT_EQ(number, kOne);
      for (const float scale : scales) ASSERT_EQ(scale, float(1 + e)) << part;
    }
}

TEST(StackedExperts, InFloat8WithBlocksAreRefusedByName) {
  TestFolder folder;
  folder.add("m.experts.gate_up_proj", "F8_E4M3", {kNumExperts, 2 * kWidth, kHidden},
             std::vector<uint8_t>(kNumExperts * 2 * kWidth * kHidden));
  folder.add("m.experts.gate_up_proj_scale_inv", "F32", {kNumExperts, 2, 1},
             std::vector<float>(kNumExperts * 2, 1));
  folder.write_file();
  const QuantConfig fp8{.layout = QuantConfig::Layout::fp8_block, .group = 128};
  const auto source = *open_model_weights(folder.path(), config_of(Stacked::outputs_first));
  const auto reader =
      MatrixReader::open(*source, fp8, "m.experts.0.gate_proj.weight", kWidth, kHidden);
  ASSERT_FALSE(reader.has_value());
  EXPECT_EQ(reader.error().message,
            "m.experts.gate_up_proj_scale_inv does not hold one scale for each of 3 experts, which "
            "is the only form of stacked experts in fp8 that is supported");
  EXPECT_NE(reader.error().fix.find("one by one"), std::string::npos);
}

TEST(StackedExperts, InFloat8WithInputsFirstAreRefusedByName) {
  TestFolder folder;
  folder.add("m.experts.down_proj", "F8_E4M3", {kNumExperts, kWidth, kHidden},
             std::vector<uint8_t>(kNumExperts * kWidth * kHidden));
  folder.add("m.experts.down_proj_scale_inv", "F32", {kNumExperts, 1, 1},
             std::vector<float>(kNumExperts, 1));
  folder.write_file();
  const auto source = *open_model_weights(folder.path(), config_of(Stacked::inputs_first));
  const auto reader = MatrixReader::open(*source, {.layout = QuantConfig::Layout::fp8_block},
                                         "m.experts.0.down_proj.weight", kHidden, kWidth);
  ASSERT_FALSE(reader.has_value());
  EXPECT_EQ(reader.error().message,
            "m.experts.0.down_proj.weight is stored as float8_e4m3, but "
            "m.experts.0.down_proj.weight_scale_inv is missing");
  EXPECT_NE(reader.error().fix.find("a copy that holds them one by one"), std::string::npos);
}

TEST_P(StackedForms, AnExpertOfItsOwnComesFirst) {
  TestFolder folder;
  add_stacked(folder, GetParam(), "m.experts.down_proj", 2, 1, kHidden, kWidth);
  folder.add("m.experts.1.down_proj.weight", "F32", {1, 2}, std::vector<float>{7, 8});
  const auto source = opened(folder, GetParam());
  ASSERT_NE(source, nullptr);
  EXPECT_EQ(source->find("m.experts.1.down_proj.weight")->shape, (std::vector<int64_t>{1, 2}));
}

TEST_P(StackedForms, ImpossibleOnesAreRefused) {
  TestFolder folder;
  folder.add("flat.experts.down_proj", "F32", {2, 2}, std::vector<float>(4));
  folder.add("odd.experts.gate_up_proj", "F32", {1, 3, 3}, std::vector<float>(9));
  const auto source = opened(folder, GetParam());
  ASSERT_NE(source, nullptr);
  const auto code = [&](const char* name) { return source->find(name).error().code; };
  EXPECT_EQ(code("flat.experts.0.down_proj.weight"), ErrorCode::wrong_shape);
  EXPECT_EQ(code("odd.experts.0.up_proj.weight"), ErrorCode::wrong_shape);
  EXPECT_EQ(code("odd.experts.0.down_proj.weight"), ErrorCode::missing_tensor);
  EXPECT_EQ(code("odd.experts.99999999999999999999.up_proj.weight"), ErrorCode::missing_tensor);
  EXPECT_EQ(code("odd.experts.-1.up_proj.weight"), ErrorCode::missing_tensor);
  EXPECT_FALSE(source->has("odd.experts.0.down_proj.weight"));
}

INSTANTIATE_TEST_SUITE_P(Weights, StackedForms,
                         ::testing::Values(Stacked::outputs_first, Stacked::inputs_first,
                                           Stacked::interleaved),
                         [](const auto& param) {
                           return param.param == Stacked::outputs_first  ? "outputs_first"
                                  : param.param == Stacked::inputs_first ? "inputs_first"
                                                                         : "interleaved";
                         });

// Biases have one axis less; those of gate and up lie as the matrices' outputs do.
TEST(StackedBiases, EachExpertHasItsOwn) {
  for (const Stacked form : {Stacked::outputs_first, Stacked::interleaved}) {
    TestFolder folder;
    std::vector<float> gate_up, down;
    for (int i = 0; i < kNumExperts * 2 * kWidth; ++i) gate_up.push_back(float(i));
    for (int i = 0; i < kNumExperts * kHidden; ++i) down.push_back(float(1000 + i));
    folder.add("m.experts.gate_up_proj_bias", "F32", {kNumExperts, 2 * kWidth}, gate_up);
    folder.add("m.experts.down_proj_bias", "F32", {kNumExperts, kHidden}, down);
    const auto source = opened(folder, form);
    ASSERT_NE(source, nullptr);
    const auto number = [&](const StoredTensor& tensor, int64_t i) {
      float x = 0;
      const int64_t step = std::max<int64_t>(tensor.row_step, 1);
      convert_stored(tensor.type, tensor.data + i * step * 4, 1, &x);
      return x;
    };
    const StoredTensor up = *source->find("m.experts.1.up_proj.bias");
    EXPECT_EQ(up.shape, (std::vector<int64_t>{kWidth}));
    EXPECT_EQ(number(up, 0), 2 * kWidth + (form == Stacked::interleaved ? 1 : kWidth));
    EXPECT_EQ(number(up, 3) - number(up, 2), form == Stacked::interleaved ? 2 : 1);
    const StoredTensor last = *source->find("m.experts.2.down_proj.bias");
    EXPECT_EQ(number(last, 4), 1000 + 2 * kHidden + 4);
    EXPECT_EQ(last.bytes, kHidden * 4);
    EXPECT_EQ(source->find("m.experts.3.down_proj.bias").error().code, ErrorCode::wrong_shape);
  }
}

TEST(StackedApart, EachMatrixHasATensorBesideTheGate) {
  TestFolder folder;
  add_stacked(folder, Stacked::outputs_first, "m.moe.gate_proj.weight", 0, 1, kWidth, kHidden);
  add_stacked(folder, Stacked::outputs_first, "m.moe.down_proj.weight", 2, 1, kHidden, kWidth);
  const auto source = opened(folder, Stacked::apart);
  ASSERT_NE(source, nullptr);
  for (int e = 0; e < kNumExperts; ++e) {
    const std::string name = "m.moe.experts." + std::to_string(e) + ".gate_proj.weight";
    const auto reader = MatrixReader::open(*source, {}, name, kWidth, kHidden);
    ASSERT_TRUE(reader.has_value()) << describe(reader.error());
    std::vector<float> memory(kWidth * kHidden);
    reader->read(0, View<float>(memory.data(), kWidth, kHidden));
    for (int r = 0; r < kWidth; ++r)
      for (int c = 0; c < kHidden; ++c) ASSERT_EQ(memory[r * kHidden + c], element(e, 0, r, c));
  }
  EXPECT_FALSE(source->has("m.moe.experts.0.up_proj.weight"));
}

// Each expert has its own scales, one for each block of 128 x 128, also for the shorter last ones.
TEST(StackedApart, Float8HasItsScalesInATensorBesideIt) {
  constexpr int kExpertRows = 130, kColumns = 200;
  constexpr uint8_t kOne = 0x38;
  TestFolder folder;
  folder.add("m.moe.up_proj.weight", "F8_E4M3", {kNumExperts, kExpertRows, kColumns},
             std::vector<uint8_t>(kNumExperts * kExpertRows * kColumns, kOne));
  std::vector<float> scales;
  for (int i = 0; i < kNumExperts * 4; ++i) scales.push_back(float(1 + i));
  folder.add("m.moe.up_proj.weight_scale_inv", "F32", {kNumExperts, 2, 2}, scales);
  const auto source = opened(folder, Stacked::apart);
  ASSERT_NE(source, nullptr);
  for (int e = 0; e < kNumExperts; ++e) {
    const std::string name = "m.moe.experts." + std::to_string(e) + ".up_proj.weight";
    const auto reader =
        MatrixReader::open(*source, {.layout = QuantConfig::Layout::fp8_block, .group = 128}, name,
                           kExpertRows, kColumns);
    ASSERT_TRUE(reader.has_value()) << describe(reader.error());
    std::vector<uint8_t> numbers(kExpertRows * kColumns);
    std::vector<float> scales_read(kExpertRows * 2);
    const ScaledRows rows = {.format = reader->format(),
                             .numbers = {numbers.data(), kExpertRows, kColumns},
                             .scales = {scales_read.data(), kExpertRows, 2},
                             .zeros = {},
                             .column_scales = {}};
    ASSERT_TRUE(reader->read(0, rows));
    for (int r = 0; r < kExpertRows; ++r) {
      for (int c = 0; c < kColumns; ++c) ASSERT_EQ(rows.numbers.row(r)[c], kOne);
      for (int block = 0; block < 2; ++block)
        ASSERT_EQ(rows.scales.row(r)[block], float(1 + 4 * e + 2 * (r / 128) + block));
    }
  }
}

}  // namespace
}  // namespace hocket
