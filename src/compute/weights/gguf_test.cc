// Every type of block and three whole files are compared with the numbers that the gguf package of
// llama.cpp reads from them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <tuple>

#include "compute/weights/gguf_blocks.h"
#include "compute/weights/gguf_footprints.h"
#include "compute/weights/gguf_names.h"
#include "compute/weights/gguf_source.h"
#include "compute/weights/golden_folder_testing.h"
#include "compute/weights/hf_config.h"
#include "compute/weights/matrix_rows.h"
#include "compute/weights/safetensors.h"
#include "gguf/folder_testing.h"

namespace hocket {
namespace {

using ::testing::HasSubstr;

// Folders with a tensor of each type, whose name is that of the type, and their numbers.
constexpr const char* kBlocks[] = {"gguf_types", "gguf_grids"};

TEST(Gguf, BlocksOfEveryTypeHaveTheirNumbers) {
  int types = 0;
  for (const char* const folder : kBlocks) {
    const auto file = GgufFile::open(kGolden / folder / "types.gguf");
    ASSERT_TRUE(file.has_value()) << file.error().message;
    const auto reference = SafetensorsFile::open(kGolden / folder / "reference.safetensors");
    ASSERT_TRUE(reference.has_value()) << reference.error().message;
    for (const std::string& name : (*reference)->names()) {
      const StoredTensor want = *(*reference)->find(name);
      const GgufFile::TensorData found = (*file)->find(name);
      ASSERT_NE(found.tensor, nullptr) << name;
      EXPECT_EQ(found.tensor->type->name, name);
      EXPECT_EQ(found.tensor->shape, want.shape);
      std::vector<float> got(static_cast<size_t>(want.bytes / 4)), numbers(got.size());
      std::memcpy(numbers.data(), want.data, static_cast<size_t>(want.bytes));
      read_blocks(*found.tensor->type, found.data, std::ssize(got), got.data());
      EXPECT_EQ(got, numbers) << name;
      ++types;
    }
  }
  EXPECT_EQ(types, 25);
}

TEST(Gguf, ScaledRowsHaveTheNumbersOfTheirBlocks) {
  int types = 0;
  for (const char* const folder : kBlocks) {
    const auto file = GgufFile::open(kGolden / folder / "types.gguf");
    ASSERT_TRUE(file.has_value()) << file.error().message;
    for (const auto& [name, tensor] : (*file)->parts()[0].header.tensors) {
      const MatrixFormat format = format_of_blocks(tensor.type->id);
      if (!format.is_scaled() || !keeps_values(tensor.type->id)) continue;
      const std::byte* const data = (*file)->find(name).data;
      const int64_t rows = tensor.shape[0], k = tensor.shape[1];
      std::vector<float> want(static_cast<size_t>(rows * k)), got(want.size());
      read_blocks(*tensor.type, data, rows * k, want.data());
      RowScratch scratch;
      const ScaledRows scaled = scratch.scaled(format, rows, k);
      for (int64_t row = 0; row < rows; ++row)
        ASSERT_TRUE(read_scaled_blocks(
            *tensor.type, data + row * (k / tensor.type->block) * tensor.type->bytes, scaled, row));
      dequantize_scaled_rows(scaled, {got.data(), rows, k});
      EXPECT_EQ(want, got) << name;
      ++types;
    }
  }
  EXPECT_EQ(types, 19);
}

TEST(Gguf, ScalesThatAreNotFiniteAreRefused) {
  const GgufType& type = *gguf_type(static_cast<uint32_t>(GgufTypeId::q8_0));
  std::vector<std::byte> block(34);
  RowScratch scratch;
  const ScaledRows scaled = scratch.scaled({WeightFormat::q8_0, 32}, 1, 32);
  EXPECT_TRUE(read_scaled_blocks(type, block.data(), scaled, 0));
  block[1] = std::byte{0x7c};  // infinity
  EXPECT_FALSE(read_scaled_blocks(type, block.data(), scaled, 0));
}

// The head is Q6_K and keeps this format, whatever is asked for the layers.
TEST(Gguf, PricesHaveTheFormatThatTheLoaderMakes) {
  const auto file = GgufFile::open(kGolden / "gguf_qwen3moe/model.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto q6_k_in = [&](WeightFormat quantize, std::string_view format) {
    return std::ranges::any_of(gguf_footprints(**file, quantize), [&](const GgufFootprint& price) {
      return price.type == "Q6_K" && price.format.starts_with(format);
    });
  };
  for (const WeightFormat asked : {WeightFormat::bf16, WeightFormat::int8, WeightFormat::int4}) {
    EXPECT_TRUE(q6_k_in(asked, "q6_k"));
    EXPECT_FALSE(q6_k_in(asked, "int8") || q6_k_in(asked, "bfloat16"));
    EXPECT_EQ(q6_k_in(asked, "int4"), asked == WeightFormat::int4);
  }
}

class WrittenGguf : public GgufFolderTest {};

// Columns of value heads change places, and heads of 128 cut blocks of 256.
TEST_F(WrittenGguf, MatricesWhoseBlocksAreCutHaveThePriceOfBytes) {
  for (const auto& [head, format, keeps] :
       {std::tuple(128u, "q8_0 in groups of 32", false), {256u, "q4_k in groups of 32", true}}) {
    constexpr uint32_t kHeads = 32;
    GgufText text;
    text.counts(1, 5).text_value("general.architecture", "qwen35");
    for (const auto& [key, number] : {std::pair("group_count", 16u),
                                      {"time_step_rank", kHeads},
                                      {"state_size", 128u},
                                      {"inner_size", kHeads * head}})
      text.u32_value(std::string("qwen35.ssm.") + key, number);
    constexpr int kType = 12, kBlock = 256, kBlockBytes = 144;  // Q4_K
    text.tensor("blk.0.ssm_out.weight", {kHeads * head, 2}, kType, 0)
        .data(int64_t{2} * kHeads * head / kBlock * kBlockBytes);
    const std::vector<GgufFootprint> prices = gguf_footprints(*opened(text), WeightFormat::bf16);
    ASSERT_EQ(prices.size(), 1U);
    EXPECT_EQ(prices[0].format, format);
    EXPECT_EQ(prices[0].keeps_values, keeps);
  }
}

TEST(Gguf, TensorsHaveTheNamesAndShapesOfAFolder) {
  const auto source = open_model_weights(kGolden / "gguf_deepseek2/model.gguf");
  ASSERT_TRUE(source.has_value()) << source.error().message;
  const auto shape = [&](const std::string& name) {
    const auto found = (*source)->find(name);
    EXPECT_TRUE(found.has_value()) << found.error().message;
    return found ? found->shape : std::vector<int64_t>{};
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape("model.embed_tokens.weight"), (Shape{800, 256}));
  EXPECT_EQ(shape("model.layers.1.self_attn.kv_b_proj.weight"), (Shape{4 * (32 + 32), 256}));
  EXPECT_EQ(shape("model.layers.1.mlp.experts.5.down_proj.weight"), (Shape{256, 32}));
  EXPECT_EQ(shape("model.layers.1.mlp.gate.e_score_correction_bias"), (Shape{6}));
  EXPECT_FALSE((*source)->has("model.layers.1.mlp.experts.6.down_proj.weight") &&
               (*source)->find("model.layers.1.mlp.experts.6.down_proj.weight"));
  const auto missing = (*source)->find("model.layers.2.self_attn.q_a_proj.weight");
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message, HasSubstr("blk.2.attn_q_a.weight"));
}

TEST(Gguf, ModulesAreLayersBehindTheOthers) {
  EXPECT_EQ(name_behind_layers("mtp.fc.weight", 48), "model.layers.48.eh_proj.weight");
  EXPECT_EQ(name_behind_layers("mtp.norm.weight", 48), "model.layers.48.shared_head.norm.weight");
  EXPECT_EQ(name_behind_layers("mtp.layers.1.mlp.gate.weight", 48),
            "model.layers.49.mlp.gate.weight");
  for (const char* other : {"model.norm.weight", "mtp.layers.x", "mtp.layers.999999999999.gate.w"})
    EXPECT_EQ(name_behind_layers(other, 48), other);
  const auto source = open_model_weights(kGolden / "gguf_qwen35moe/model.gguf");
  ASSERT_TRUE(source.has_value()) << source.error().message;
  EXPECT_TRUE((*source)->has("mtp.pre_fc_norm_hidden.weight"));
  EXPECT_EQ((*source)->find("mtp.fc.weight")->shape, (std::vector<int64_t>{48, 96}));
}

TEST(Gguf, GateAndUpOfExpertsMayLieInOneTensor) {
  const auto file = GgufFile::open(kGolden / "gguf_gemma4/model.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto source = open_model_weights(kGolden / "gguf_gemma4");
  ASSERT_TRUE(source.has_value()) << source.error().message;
  constexpr int kExpert = 5, kRows = 16, kColumns = 48;
  const GgufFile::TensorData all = (*file)->find("blk.1.ffn_gate_up_exps.weight");
  ASSERT_NE(all.tensor, nullptr);
  EXPECT_EQ(all.tensor->shape, (std::vector<int64_t>{8, 2 * kRows, kColumns}));
  const auto* const numbers = reinterpret_cast<const float*>(all.data);
  for (const bool up : {false, true}) {
    const std::string name = "model.layers.1.experts.5.";
    EXPECT_TRUE((*source)->has(name + (up ? "up_proj.weight" : "gate_proj.weight")));
    const auto half = (*source)->find(name + (up ? "up_proj.weight" : "gate_proj.weight"));
    ASSERT_TRUE(half.has_value()) << half.error().message;
    EXPECT_EQ(half->shape, (std::vector<int64_t>{kRows, kColumns}));
    EXPECT_EQ(std::memcmp(half->data, numbers + (kExpert * 2 + up) * kRows * kColumns,
                          sizeof(float) * kRows * kColumns),
              0);
  }
  EXPECT_FALSE((*source)->find("model.layers.1.experts.8.up_proj.weight").has_value());
}

// The key of cached weights reads the header of each part.
TEST_F(WrittenGguf, AFirstPartMayHoldNoTensors) {
  const auto part = [](uint64_t tensors, uint32_t number) {
    GgufText text;
    text.counts(tensors, 3 + tensors).u32_value("split.no", number).u32_value("split.count", 2);
    return std::move(tensors == 0 ? text.u32_value("general.alignment", 1 << 20)
                                  : text.u32_value("split.tensors.count", 1)
                                        .u32_value("general.file_type", 0)
                                        .tensor("a", {8}, 0, 0)
                                        .data(32));
  };
  write("m-00002-of-00002.gguf", part(1, 1));
  auto file = GgufFile::open(write("m-00001-of-00002.gguf", part(0, 0)));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const GgufWeights weights(*std::move(file));
  EXPECT_TRUE(weights.identity().has_value());
  EXPECT_EQ(weights.unread(), (std::vector<std::string>{"a"}));
}

// Older files of Qwen3-Next hold the projections of a delta net as the folder does.
TEST_F(WrittenGguf, ProjectionsOfDeltaNetsMayBeWhole) {
  GgufText text;
  text.counts(1, 6).text_value("general.architecture", "qwen3next");
  for (const auto& [key, number] : {std::pair("block_count", 1u),
                                    {"ssm.group_count", 2u},
                                    {"ssm.time_step_rank", 4u},
                                    {"ssm.state_size", 4u},
                                    {"ssm.inner_size", 16u}})
    text.u32_value(std::string("qwen3next.") + key, number);
  constexpr int kRows = 2 * (2 * 4) + 2 * 16, kColumns = 8;
  text.tensor("blk.0.ssm_in.weight", {kColumns, kRows}, 0, 0).data(kRows * kColumns * 4);
  auto file = opened(text);
  const std::byte* const data = file->find("blk.0.ssm_in.weight").data;
  const GgufWeights weights(std::move(file));
  const auto found = weights.find("model.layers.0.linear_attn.in_proj_qkvz.weight");
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->shape, (std::vector<int64_t>{kRows, kColumns}));
  EXPECT_EQ(found->data, data);
}

// Layers may differ in their heads.
TEST_F(WrittenGguf, QueriesKeysAndValuesMayLieInOneTensor) {
  GgufText text;
  text.counts(2, 6).text_value("general.architecture", "qwen3");
  for (const auto& [key, number] : {std::pair("block_count", 2u),
                                    {"attention.head_count", 4u},
                                    {"attention.key_length", 2u},
                                    {"attention.value_length", 1u}})
    text.u32_value(std::string("qwen3.") + key, number);
  text.i32s_value("qwen3.attention.head_count_kv", {4, 2});
  constexpr int64_t kQueries = 4 * 2, kKeys = 2 * 2, kValues = 2 * 1, kColumns = 8;
  constexpr int64_t kRows = kQueries + kKeys + kValues, kRowBytes = kColumns * 4;
  text.tensor("blk.1.attn_qkv.weight", {kColumns, kRows}, 0, 0)
      .tensor("blk.1.attn_qkv.bias", {kRows}, 0, kRows * kRowBytes)
      .data(kRows * kRowBytes + kRows * 4);
  auto file = opened(text);
  const std::byte* const weight = file->find("blk.1.attn_qkv.weight").data;
  const std::byte* const bias = file->find("blk.1.attn_qkv.bias").data;
  const GgufWeights weights(std::move(file));
  const auto expect = [&](std::string_view which, int64_t first, int64_t rows) {
    const std::string name = fmt::format("model.layers.1.self_attn.{}_proj.", which);
    EXPECT_TRUE(weights.has(name + "weight"));
    const auto matrix = weights.find(name + "weight"), list = weights.find(name + "bias");
    ASSERT_TRUE(matrix && list) << which;
    EXPECT_EQ(matrix->shape, (std::vector<int64_t>{rows, kColumns}));
    EXPECT_EQ(matrix->data, weight + first * kRowBytes);
    EXPECT_EQ(matrix->bytes, rows * kRowBytes);
    EXPECT_EQ(list->shape, (std::vector<int64_t>{rows}));
    EXPECT_EQ(list->data, bias + first * 4);
    EXPECT_EQ(list->bytes, rows * 4);
  };
  expect("q", 0, kQueries);
  expect("k", kQueries, kKeys);
  expect("v", kQueries + kKeys, kValues);
  EXPECT_TRUE(weights.unread().empty());
  EXPECT_FALSE(weights.has("model.layers.0.self_attn.q_proj.weight"));
}

TEST(Gguf, KeysAndValuesOfLatentsAreOneMatrixAgain) {
  const auto file = GgufFile::open(kGolden / "gguf_deepseek2/model.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const auto source = open_model_weights(kGolden / "gguf_deepseek2");
  ASSERT_TRUE(source.has_value()) << source.error().message;
  constexpr int kHeads = 4, kRank = 256, kNope = 32, kValue = 32;
  const auto all = MatrixReader::open(**source, {}, "model.layers.0.self_attn.kv_b_proj.weight",
                                      kHeads * (kNope + kValue), kRank);
  ASSERT_TRUE(all.has_value()) << all.error().message;
  const auto numbers = [&](const char* name, size_t count) {
    const GgufFile::TensorData found = (*file)->find(name);
    std::vector<float> out(count);
    read_blocks(*found.tensor->type, found.data, std::ssize(out), out.data());
    return out;
  };
  const auto keys = numbers("blk.0.attn_k_b.weight", size_t{kHeads} * kRank * kNope);
  const auto values = numbers("blk.0.attn_v_b.weight", size_t{kHeads} * kValue * kRank);
  std::vector<float> row(kRank);
  for (int r = 0; r < kHeads * (kNope + kValue); ++r) {
    const int head = r / (kNope + kValue), i = r % (kNope + kValue);
    all->read<float>(r, {row.data(), 1, kRank});
    for (int c = 0; c < kRank; ++c)
      ASSERT_EQ(row[c], i < kNope ? keys[(head * kRank + c) * kNope + i]
                                  : values[(head * kValue + i - kNope) * kRank + c]);
  }
}

TEST(Gguf, ConfigIsThatOfTheFolder) {
  const auto model = read_hf_config(kGolden / "gguf_deepseek2/model.gguf");
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ(model->architecture, "DeepseekV3ForCausalLM");
  EXPECT_EQ(model->mla.kv_rank, 256);
  EXPECT_EQ(model->mla.nope_dim, 32);
  EXPECT_EQ(model->moe.num_groups, 2);
  EXPECT_EQ(model->moe.scaling_factor, 2.5);
  EXPECT_EQ(model->rope.mscale_all_dim, 1);
  EXPECT_EQ(model->rms_norm_eps, 1e-6);
  EXPECT_EQ(model->quant.layout, QuantConfig::Layout::gguf);
  const auto llama = read_hf_config(kGolden / "gguf_llama");
  ASSERT_TRUE(llama.has_value()) << llama.error().message;
  EXPECT_EQ(llama->rope.scaling, RopeConfig::Scaling::divided);
  EXPECT_EQ(llama->rope.divisors.size(), 8);
  EXPECT_EQ(llama->rope.style, RopeConfig::Style::interleaved);
  EXPECT_TRUE(llama->tie_word_embeddings);
}

TEST_F(WrittenGguf, SeveralModelsInOneFolderAreNamed) {
  for (const char* name : {"m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj.gguf"})
    write(name, GgufText().counts(0, 0));
  const auto model = read_hf_config(folder_);
  ASSERT_FALSE(model.has_value());
  EXPECT_THAT(model.error().message,
              HasSubstr("holds 2 models in GGUF: m-Q4_K_M.gguf, m-Q8_0.gguf"));
}

// Parsing their headers would only cost time, since the folder is no model in GGUF.
TEST_F(WrittenGguf, AFolderWithAConfigurationOpensNoneOfItsGgufFiles) {
  for (const char* name : {"m-Q4_K_M.gguf", "m-Q8_0.gguf"}) write(name, GgufText().counts(0, 0));
  std::ofstream(folder_ / "config.json") << "{}";
  const int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  ASSERT_GE(watch, 0);
  EXPECT_GE(inotify_add_watch(watch, folder_.c_str(), IN_OPEN), 0);
  EXPECT_FALSE(read_hf_config(folder_).has_value()) << "the configuration names no architecture";
  alignas(inotify_event) char events[4096];
  const ssize_t num_bytes = ::read(watch, events, sizeof(events));
  close(watch);
  std::set<std::string> opened;
  for (ssize_t at = 0; at < num_bytes;) {
    const auto* const event = reinterpret_cast<const inotify_event*>(events + at);
    if (event->len > 0) opened.insert(event->name);
    at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
  }
  EXPECT_EQ(opened, std::set<std::string>{"config.json"});
}

TEST(Gguf, AFileThatDoesNotExistIsNamed) {
  const auto model = read_hf_config("/nowhere/model.gguf");
  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code, ErrorCode::model_not_found);
  EXPECT_THAT(model.error().message, HasSubstr("/nowhere/model.gguf"));
}

}  // namespace
}  // namespace hocket
