// mxfp4, mxfp8 and nvfp4: the faults of files, and the experts of gpt-oss. stored_formats_test.cc
// has all that they share with other formats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "compute/weights/config_testing.h"
#include "compute/weights/hf_config.h"
#include "compute/weights/loader.h"
#include "compute/weights/quant_config.h"
#include "compute/weights/quantize.h"
#include "compute/weights/stacked_experts.h"
#include "compute/weights/weight_folder_testing.h"

namespace hocket {
namespace {

using testing::HasSubstr;
using MxLayout = QuantConfig::Layout;

// Tensors of x [16, 64], whose bytes a test changes.
struct MxFiles {
  MxLayout layout;
  std::vector<uint8_t> numbers, scales;
  float column_scale = 1;
  bool modelopt = true;

  explicit MxFiles(MxLayout of) : layout(of) {
    const bool fp8 = layout == MxLayout::mxfp8, nvfp4 = layout == MxLayout::nvfp4;
    numbers.assign(16 * (fp8 ? 64 : 32), fp8 ? 0x38 : 0x22);  // ones
    scales.assign(16 * (nvfp4 ? 4 : 2), nvfp4 ? 0x38 : 127);  // ones
  }
  void add_to(TestFolder& folder) const {
    const bool fp8 = layout == MxLayout::mxfp8, nvfp4 = layout == MxLayout::nvfp4;
    folder.add(fp8 || nvfp4 ? "x.weight" : "x.weight_packed", fp8 ? "F8_E4M3" : "U8",
               {16, fp8 ? 64 : 32}, numbers);
    folder.add("x.weight_scale", nvfp4 ? "F8_E4M3" : "F8_E8M0", {16, nvfp4 ? 4 : 2}, scales);
    if (nvfp4)
      folder.add(modelopt ? "x.weight_scale_2" : "x.weight_global_scale", "F32", {1},
                 std::vector<float>{column_scale});
  }
};

// Loads x [16, k]; `w` is valid as long as the result.
struct MxLoaded {
  std::unique_ptr<WeightSource> source;
  std::optional<WeightLoader> loader;
  PackedWeight w;
  std::string error;
};
MxLoaded load_x(TestFolder& folder, MxLayout layout, int k = 64) {
  folder.write_file();
  MxLoaded out;
  out.source = *open_model_weights(folder.path(), {});
  WeightLoader::Options options{.source = out.source.get(), .stored = {.layout = layout}};
  WeightLoader plan = WeightLoader::measuring(options);
  plan.matrix("x.weight", 16, k);
  options.bytes = plan.bytes();
  Result<void> status = plan.status();
  if (status) {
    out.loader.emplace(*WeightLoader::loading(options));
    out.w = out.loader->matrix("x.weight", 16, k);
    status = out.loader->status();
  }
  if (!status) out.error = status.error().message;
  return out;
}
MxLoaded load_x(const MxFiles& files) {
  TestFolder folder;
  files.add_to(folder);
  return load_x(folder, files.layout);
}

constexpr MxLayout kMxLayouts[] = {MxLayout::mxfp4, MxLayout::mxfp8, MxLayout::nvfp4};

TEST(MxFormats, OnesAreOnes) {
  for (const MxLayout layout : kMxLayouts) {
    const MxLoaded x = load_x(MxFiles(layout));
    ASSERT_EQ(x.error, "");
    for (int col = 0; col < 64; ++col) EXPECT_EQ(Unpacked{x.w}.value(15, col), 1.0f);
  }
}

TEST(MxFormats, NaNIsRefused) {
  const std::string why = "x.weight holds a number or a scale that is NaN";
  for (const MxLayout layout : kMxLayouts)
    for (const uint8_t nan : {0x7f, 0xff}) {
      MxFiles files(layout);
      files.scales.back() = nan;
      const bool is_nan = layout == MxLayout::nvfp4 || nan == 0xff;
      EXPECT_THAT(load_x(files).error, is_nan ? HasSubstr(why) : HasSubstr(""));
      EXPECT_EQ(load_x(files).error.empty(), !is_nan);
      MxFiles numbers(layout);
      numbers.numbers.back() = nan;
      EXPECT_EQ(load_x(numbers).error.empty(), layout != MxLayout::mxfp8);
    }
}

// A scale that would take a number out of the normal range of bf16 is refused, unless it stands for
// zeros alone.
TEST(MxFormats, ScalesReachAsFarAsBf16) {
  struct Limits {
    MxLayout layout;
    int least, most;
  };
  for (const Limits& c : {Limits{MxLayout::mxfp4, 2, 252}, {MxLayout::mxfp8, 10, 246}})
    for (const int byte : {0, c.least - 1, c.least, c.most, c.most + 1, 254}) {
      const bool fits = byte >= c.least && byte <= c.most;
      MxFiles ones(c.layout), zeros(c.layout);
      ones.scales[3] = zeros.scales[3] = static_cast<uint8_t>(byte);
      std::fill(zeros.numbers.begin(), zeros.numbers.end(),
                c.layout == MxLayout::mxfp4 ? uint8_t{0x80} : uint8_t{0});
      EXPECT_EQ(load_x(ones).error.empty(), fits) << byte;
      const MxLoaded x = load_x(zeros);
      ASSERT_EQ(x.error, "") << byte;
      EXPECT_EQ(Unpacked{x.w}.value(1, 63), 0.0f);
      if (fits) {
        EXPECT_EQ(Unpacked{load_x(ones).w}.scale(1, 63), std::ldexp(1.0f, byte - 127));
      }
    }
}

TEST(MxFormats, TheScaleOfAllNumbersMustBeANumber) {
  for (const bool modelopt : {true, false})
    for (const float bad : {0.0f, -1.0f, std::nanf(""), HUGE_VALF}) {
      MxFiles files(MxLayout::nvfp4);
      files.column_scale = bad;
      files.modelopt = modelopt;
      if (!modelopt) {
        TestFolder folder;
        folder.add("x.weight_packed", "U8", {16, 32}, files.numbers);
        folder.add("x.weight_scale", "F8_E4M3", {16, 4}, files.scales);
        folder.add("x.weight_global_scale", "F32", {1}, std::vector<float>{bad});
        EXPECT_THAT(load_x(folder, files.layout).error, HasSubstr("must be above 0 and finite"));
      } else {
        EXPECT_THAT(load_x(files).error, HasSubstr("must be above 0 and finite"));
      }
    }
}

TEST(MxFormats, ShapesAndTypesAreNamed) {
  TestFolder a, b, c, d;
  MxFiles(MxLayout::mxfp4).add_to(a);
  EXPECT_THAT(load_x(a, MxLayout::mxfp4, 40).error,
              HasSubstr("40 inputs, which are not whole groups of 32"));
  b.add("x.weight_packed", "U8", {16, 16}, std::vector<uint8_t>(256));
  EXPECT_EQ(load_x(b, MxLayout::mxfp4).error,
            "x.weight_packed has the shape [16, 16], but config.json asks for [16, 32]");
  c.add("x.weight_packed", "U8", {16, 32}, std::vector<uint8_t>(512));
  c.add("x.weight_scale", "F32", {16, 2}, std::vector<float>(32));
  EXPECT_EQ(load_x(c, MxLayout::mxfp4).error,
            "x.weight_scale is stored as float32, not as uint8 or float8_e8m0");
  d.add("x.weight", "U8", {16, 32}, std::vector<uint8_t>(512));
  d.add("x.weight_scale", "F8_E4M3", {16, 4}, std::vector<uint8_t>(64));
  EXPECT_THAT(load_x(d, MxLayout::nvfp4).error, HasSubstr("x.weight_scale_2"));
}

// Numbers that the format has stay as they are; ties go to the even number.
TEST(MxFormats, QuantizingTakesTheNearestNumbers) {
  const float numbers[16] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 6,
                             -0.5f, -1,    -1.5f, -2,    -3,   -4,   0, 0.26f};
  const uint8_t nearest[16] = {0, 2, 2, 4, 4, 6, 6, 7, 9, 10, 11, 12, 13, 14, 0, 1};
  RowScratch scratch;
  for (const WeightFormat format : {WeightFormat::mxfp4, WeightFormat::nvfp4}) {
    const bool nvfp4 = format == WeightFormat::nvfp4;
    std::vector<float> x(64);
    for (int i = 0; i < 64; ++i) x[i] = numbers[i % 16] * (i < 32 ? 0.25f : 0.125f);
    std::fill(x.begin() + 32, x.begin() + 48, 0.0f);
    const ScaledRows rows = scratch.scaled({format, nvfp4 ? kNvfp4Group : kMxGroup}, 1, 64);
    ASSERT_TRUE(quantize_scaled_rows(View<const float>(x.data(), 1, 64), rows));
    for (int i = 0; i < 64; ++i) {
      const bool zero = i >= 32 && i < 48;
      EXPECT_EQ(rows.numbers.row(0)[i], zero ? 0 : nearest[i % 16]) << i;
    }
    const float outer = nvfp4 ? rows.column_scales[0] : 1;
    EXPECT_EQ(rows.scales.row(0)[0] * outer, 0.25f);
    EXPECT_EQ(rows.scales.row(0)[rows.scales.cols - 1] * outer, 0.125f);
    std::vector<float> back(64);
    dequantize_scaled_rows(rows, View<float>(back.data(), 1, 64));
    EXPECT_EQ(back[7], 1.5f);
    EXPECT_EQ(back[8], -0.125f);
  }
}

// ModelOpt may describe a folder in a file of its own.
TEST(MxFormats, HfQuantConfigIsRead) {
  TestFolder folder;
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path() / name) << text;
  };
  write("config.json", R"({"architectures":["LlamaForCausalLM"],"vocab_size":512,"hidden_size":64,
      "intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,
      "max_position_embeddings":1024})");
  EXPECT_EQ(read_hf_config(folder.path())->quant.layout, MxLayout::none);
  const std::string text = R"({"producer":{"name":"modelopt"},"quantization":{"quant_algo":"NVFP4",
      "kv_cache_quant_algo":"FP8","group_size":16,"exclude_modules":["lm_head","*.q_proj"]}})";
  write("hf_quant_config.json", text);
  const auto model = read_hf_config(folder.path());
  ASSERT_TRUE(model.has_value()) << describe(model.error());
  EXPECT_EQ(model->quant.layout, MxLayout::nvfp4);
  EXPECT_FALSE(is_quantized(model->quant, "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(is_quantized(model->quant, "model.layers.0.self_attn.k_proj"));
  write("hf_quant_config.json", with(text, "NVFP4", "FP8"));
  const auto other = read_hf_config(folder.path());
  ASSERT_FALSE(other.has_value());
  EXPECT_EQ(other.error().code, ErrorCode::unsupported_model);
  EXPECT_THAT(other.error().message, HasSubstr("hf_quant_config.json"));
  write("hf_quant_config.json", "[]");
  EXPECT_EQ(read_hf_config(folder.path()).error().code, ErrorCode::bad_config);
}

// The experts of gpt-oss: all of a layer in one tensor, gate and up interleaved, with biases.
struct GptOss {
  static constexpr int kExperts = 3, kHidden = 64, kWidth = 96;
  TestMatrix gate_up(int e) const {
    return {"g" + std::to_string(e), 2 * kWidth, kHidden, {.layout = MxLayout::mxfp4}};
  }
  TestMatrix down(int e) const {
    return {"d" + std::to_string(e), kHidden, kWidth, {.layout = MxLayout::mxfp4}};
  }
  static float bias(int e, int row) { return static_cast<float>(e * 1000 + row); }

  void add_to(TestFolder& folder) const {
    for (const bool is_down : {false, true}) {
      std::vector<uint8_t> blocks, scales;
      std::vector<float> biases;
      const TestMatrix first = is_down ? down(0) : gate_up(0);
      for (int e = 0; e < kExperts; ++e) {
        const TestMatrix m = is_down ? down(e) : gate_up(e);
        for (int row = 0; row < m.n; ++row) {
          for (int col = 0; col < m.k; col += 2)
            blocks.push_back(
                static_cast<uint8_t>(m.number(row, col) | m.number(row, col + 1) << 4));
          for (int g = 0; g < m.groups(); ++g) scales.push_back(m.scale_byte(row, g));
          biases.push_back(bias(e, row));
        }
      }
      const std::string name = is_down ? "mlp.experts.down_proj" : "mlp.experts.gate_up_proj";
      folder.add(name + "_blocks", "U8", {kExperts, first.n, first.k / 32, 16}, blocks);
      folder.add(name + "_scales", "U8", {kExperts, first.n, first.k / 32}, scales);
      folder.add(name + "_bias", "F32", {kExperts, first.n}, biases);
    }
    folder.write_file();
  }
};

TEST(MxFormats, StackedExpertsAreReadOneByOne) {
  const GptOss files;
  TestFolder folder;
  files.add_to(folder);
  MoeConfig moe;
  moe.num_experts = GptOss::kExperts;
  moe.stacked = MoeConfig::Stacked::inputs_first;  // the form of unquantized copies
  moe.interleaved = true;
  const auto source = *open_model_weights(folder.path(), moe);
  WeightLoader::Options options{.source = source.get(), .stored = {.layout = MxLayout::mxfp4}};
  std::vector<ExpertWeights> experts;
  const auto describe = [&](WeightLoader& l) {
    experts.clear();
    for (int e = 0; e < GptOss::kExperts; ++e) {
      const std::string at = "mlp.experts." + std::to_string(e);
      experts.push_back(
          l.swiglu({at + ".gate_proj.weight", at + ".up_proj.weight", at + ".down_proj.weight"},
                   GptOss::kHidden, GptOss::kWidth, Bias::present));
    }
  };
  WeightLoader plan = WeightLoader::measuring(options);
  describe(plan);
  options.bytes = plan.bytes();
  WeightLoader loader = *WeightLoader::loading(options);
  describe(loader);
  ASSERT_TRUE(loader.status().has_value()) << loader.status().error().message;
  for (int e = 0; e < GptOss::kExperts; ++e) {
    const TestMatrix gate_up = files.gate_up(e), down = files.down(e);
    const ExpertWeights& got = experts[e];
    ASSERT_EQ(got.gate_up.format, WeightFormat::mxfp4);
    for (int i = 0; i < GptOss::kWidth; ++i)
      for (int part = 0; part < 2; ++part) {
        const int row = i / 16 * 32 + part * 16 + i % 16;  // gate and up alternate by panels
        EXPECT_EQ(got.gate_up.bias[row], GptOss::bias(e, 2 * i + part));
        for (int col = 0; col < GptOss::kHidden; ++col)
          ASSERT_EQ(Unpacked{got.gate_up}.value(row, col), gate_up.value(2 * i + part, col));
      }
    for (int row = 0; row < GptOss::kHidden; ++row) {
      EXPECT_EQ(got.down.bias[row], GptOss::bias(e, row));
      for (int col = 0; col < GptOss::kWidth; ++col)
        ASSERT_EQ(Unpacked{got.down}.value(row, col), down.value(row, col));
    }
  }
}

TEST(MxFormats, StackedBlocksOfOtherShapesAreRefused) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2, 64, 32}, {1, 64, 2, 16}, {3, 64, 2, 16}, {2, 63, 2, 16}}) {
    TestFolder folder;
    int64_t bytes = 1;
    for (const int64_t length : shape) bytes *= length;
    folder.add("mlp.experts.gate_up_proj_blocks", "U8", shape, std::vector<uint8_t>(bytes));
    folder.write_file();
    MoeConfig moe;
    moe.num_experts = 2;
    moe.stacked = MoeConfig::Stacked::inputs_first;
    const auto source = *open_model_weights(folder.path(), moe);
    const auto found = source->find("mlp.experts.1.up_proj.weight_packed");
    ASSERT_FALSE(found.has_value());
    EXPECT_THAT(found.error().message, HasSubstr("does not hold expert 1 of 2"));
  }
}

}  // namespace
}  // namespace hocket
