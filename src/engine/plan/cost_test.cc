// Tests the sizes of models: against loading, published numbers and measured passes.
#include "engine/plan/cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <vector>

#include "compute/weights/hf_config.h"
#include "compute/weights/safetensors.h"
#include "compute/weights/stacked_experts.h"
#include "engine/plan/testing.h"
#include "gguf/file.h"

namespace hocket {
namespace {

using testing::choice_of;
using testing::cost_of;

ModelCost published(const char* name) {
  return cost_of(choice_of(std::filesystem::path("configs") / name));
}

std::vector<std::filesystem::path> runnable_folders() {
  std::vector<std::filesystem::path> folders;
  for (const char* group : {"configs", "golden", "golden/quantized"})
    for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "tests" / group))
      if (const auto model = read_hf_config(entry.path());
          model && find_family(model->architecture).has_value())
        folders.push_back(entry.path());
  return folders;
}

// Returns a folder with a model's GGUF file up to where the data of its tensors begin.
std::filesystem::path cut_to_header(const std::filesystem::path& folder) {
  const auto file = GgufFile::open(gguf_file_of(folder));
  EXPECT_TRUE(file.has_value()) << folder << describe(file.error());
  const GgufFile::Part& part = (*file)->parts().front();
  const auto cut = std::filesystem::path(::testing::TempDir()) / "cut" / folder.filename();
  std::filesystem::create_directories(cut);
  std::ofstream(cut / "model.gguf", std::ios::binary)
      .write(reinterpret_cast<const char*>(part.bytes.data()), part.header.data_offset);
  return cut;
}

TEST(Cost, TheHeaderOfAGgufFileSaysAll) {
  int compared = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "tests/golden")) {
    if (!std::filesystem::exists(entry.path() / "model.gguf")) continue;
    const std::filesystem::path cut = cut_to_header(entry.path());
    for (const char* dtype : {"bfloat16", "float32"}) {
      const ServerSettings settings{.model = {.dtype = dtype}};
      EXPECT_EQ(cost_of(choice_of(cut, settings)).loaded_bytes(),
                cost_of(choice_of(entry.path(), settings)).loaded_bytes())
          << cut;
      ++compared;
    }
    EXPECT_FALSE(open_model_weights(cut).has_value()) << cut;
  }
  EXPECT_GE(compared, 20);
}

TEST(Cost, PartsAddUpToWhatLoadingAsksFor) {
  const std::vector<std::filesystem::path> folders = runnable_folders();
  ASSERT_GE(folders.size(), 6);
  for (const auto& folder : folders)
    for (const char* quantization : {"none", "int8", "int4"}) {
      const ModelChoice choice = choice_of(folder, {.model = {.quantization = quantization}});
      const auto loaded = measure_weights(choice, nullptr);
      ASSERT_TRUE(loaded.has_value()) << folder << describe(loaded.error());
      EXPECT_EQ(cost_of(choice).loaded_bytes(), loaded->bytes) << folder << " " << quantization;
    }
}

// The files hold the tensors that config.json describes, so a plan without files is exact.
TEST(Cost, FilesAskForTheSame) {
  int compared = 0;
  for (const auto& folder : runnable_folders()) {
    const auto source = open_model_weights(folder, choice_of(folder, {}).model.moe);
    if (!source) continue;
    for (const char* dtype : {"bfloat16", "float32"}) {
      const ModelChoice choice = choice_of(folder, {.model = {.dtype = dtype}});
      const auto loaded = measure_weights(choice, source->get());
      ASSERT_TRUE(loaded.has_value()) << folder << describe(loaded.error());
      EXPECT_EQ(cost_of(choice).loaded_bytes(), loaded->bytes) << folder << " " << dtype;
      ++compared;
    }
  }
  EXPECT_GE(compared, 8);
}

// Modules for multi-token prediction: their bytes are planned, and they keep at least eight bits.
TEST(Cost, LoadedModulesAreCounted) {
  for (const char* folder :
       {"golden/deepseek_v3_mtp", "golden/glm4_moe_mtp", "golden/qwen3_next_mtp",
        "golden/qwen3_5_moe_mtp", "golden/mimo_v2_flash_mtp", "../models/hocket-tiny-qwen3-moe"})
    for (const char* quantization : {"none", "int4"}) {
      const ModelChoice without = choice_of(folder, {.model = {.quantization = quantization}});
      const ModelChoice with =
          choice_of(folder, {.model = {.quantization = quantization, .max_mtp_modules = 8}});
      const int modules = without.model.local_mtp ? 3 : 1;
      EXPECT_EQ(without.model.num_mtp_loaded, 0) << folder;
      EXPECT_EQ(with.model.num_mtp_loaded, modules) << folder;
      const ModelCost cost = cost_of(with);
      const auto loaded = measure_weights(with, nullptr);
      ASSERT_TRUE(loaded.has_value()) << folder << describe(loaded.error());
      EXPECT_EQ(cost.loaded_bytes(), loaded->bytes) << folder << " " << quantization;
      EXPECT_EQ(cost.mtp().bytes, cost_of(without).mtp().bytes) << folder;
      EXPECT_GT(cost.mtp().bytes, 0) << folder;
      const bool quantized = with.quantize == WeightFormat::int4;
      EXPECT_EQ(cost.mtp().format, quantized ? WeightFormat::int8 : WeightFormat::bf16) << folder;
      const KvShape module = with.kv_shapes(32).full.back();
      EXPECT_EQ(with.kv_full_page_bytes(32),
                without.kv_full_page_bytes(32) + modules * module.page_bytes());
    }
}

TEST(Cost, ModulesThatAModelDoesNotHaveAreRefused) {
  ServerSettings settings = testing::settings_for("tests/golden/qwen3_moe");
  settings.model.max_mtp_modules = 1;
  const auto refused = choose_model_form(settings);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::bad_value);
  EXPECT_THAT(refused.error().message, ::testing::HasSubstr("Qwen3MoeForCausalLM"));
}

TEST(Cost, ParametersAreThoseThatPublishersCount) {
  const ModelCost v3 = published("deepseek_v3");
  EXPECT_NEAR(static_cast<double>(v3.parameters()), 671.03e9, 0.001 * 671e9);
  EXPECT_NEAR(static_cast<double>(v3.active_parameters()), 37e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(v3.mtp().parameters), 11.5e9, 0.02 * 11.5e9);
  const ModelCost lite = published("deepseek_v2_lite");
  EXPECT_NEAR(static_cast<double>(lite.parameters()), 15.7e9, 0.05e9);
  EXPECT_EQ(lite.mtp().bytes, 0);
  const ModelCost qwen = published("qwen3_235b_a22b");
  EXPECT_NEAR(static_cast<double>(qwen.parameters()), 235.09e9, 0.05e9);
  EXPECT_NEAR(static_cast<double>(qwen.active_parameters()), 22e9, 0.5e9);
  const ModelCost hybrid = published("qwen3_5_397b_a17b");
  EXPECT_NEAR(static_cast<double>(hybrid.parameters()), 397e9, 1e9);
  EXPECT_NEAR(static_cast<double>(hybrid.active_parameters()), 17e9, 1e9);
  const ModelCost windowed = published("mimo_v2_flash");
  EXPECT_NEAR(static_cast<double>(windowed.parameters()), 309e9, 1e9);
  EXPECT_NEAR(static_cast<double>(windowed.active_parameters()), 15e9, 0.5e9);
}

TEST(Cost, PartsByHand) {
  const ModelCost cost = published("qwen3_235b_a22b");
  const auto parameters = [&](WeightPart part) { return cost.part(part).parameters; };
  constexpr int64_t kLayers = 94, kHidden = 4096;
  EXPECT_EQ(parameters(WeightPart::embedding), 151936 * kHidden);
  EXPECT_EQ(parameters(WeightPart::attention), kLayers * kHidden * 128 * (64 + 4 + 4 + 64));
  EXPECT_EQ(parameters(WeightPart::experts), kLayers * 128 * 3 * kHidden * 1536);
  EXPECT_EQ(parameters(WeightPart::gate), kLayers * kHidden * 128);
  EXPECT_EQ(parameters(WeightPart::norms), kLayers * (2 * kHidden + 2 * 128) + kHidden);
  EXPECT_EQ(parameters(WeightPart::dense_mlp), 0);
  EXPECT_EQ(parameters(WeightPart::shared_experts), 0);
  // All sizes are whole panels and blocks, so there is no padding.
  EXPECT_EQ(cost.part(WeightPart::experts).bytes, 2 * parameters(WeightPart::experts));
  EXPECT_EQ(cost.kv_bytes_per_token(), kLayers * 2 * 4 * 128 * 2);
}

// A token has 576 numbers per layer, for any number of heads.
TEST(Cost, LatentsAreSmall) {
  EXPECT_EQ(published("deepseek_v3").kv_bytes_per_token(), 61 * 576 * 2);
}

TEST(Cost, FormatsAreSaid) {
  const char* folder = "configs/qwen3_235b_a22b";
  const ModelCost plain = cost_of(choice_of(folder));
  const ModelCost int4 = cost_of(choice_of(folder, {.model = {.quantization = "int4"}}));
  EXPECT_EQ(plain.part(WeightPart::experts).format, WeightFormat::bf16);
  EXPECT_EQ(int4.part(WeightPart::experts).format, WeightFormat::int4);
  EXPECT_EQ(int4.part(WeightPart::head).format, WeightFormat::int8);
  EXPECT_EQ(plain.part(WeightPart::head).format, WeightFormat::bf16);
  EXPECT_EQ(published("deepseek_v3").part(WeightPart::experts).format, WeightFormat::fp8);
  const double share = static_cast<double>(int4.part(WeightPart::experts).bytes) /
                       static_cast<double>(plain.part(WeightPart::experts).bytes);
  EXPECT_GT(share, 0.25);  // above a quarter because of scales
  EXPECT_LT(share, 0.31);
}

// Expects two operations per parameter that a token visits (norms aside), and the scores.
TEST(Cost, OperationsAreThoseOfTheActiveParameters) {
  const ModelCost qwen = published("qwen3_235b_a22b");
  const auto active = [](const ModelCost& cost) {
    return 2.0 *
           static_cast<double>(cost.active_parameters() - cost.part(WeightPart::norms).parameters);
  };
  const double scores = 4.0 * 94 * 64 * 128 * 1000;
  EXPECT_DOUBLE_EQ(qwen.operations(qwen.decode(1, 1000)).all(), active(qwen) + scores);
  const ModelCost v3 = published("deepseek_v3");
  const double latent_scores = 2.0 * 61 * 128 * (2 * 512 + 64) * 1000;
  const Operations operations = v3.operations(v3.decode(1, 1000));
  EXPECT_NEAR(operations.all(), active(v3) + latent_scores, 1e-6 * operations.all());
  EXPECT_GT(operations.fp8, operations.floats);
  EXPECT_EQ(operations.integers, 0);
  const ModelCost int8 =
      cost_of(choice_of("configs/qwen3_235b_a22b", {.model = {.quantization = "int8"}}));
  EXPECT_GT(int8.operations(int8.decode(1, 1000)).integers, 0.9 * active(qwen));
  EXPECT_DOUBLE_EQ(int8.operations(int8.decode(1, 1000)).all(), active(qwen) + scores);
}

TEST(Cost, SoftmaxTakesTimeAndIsNoMultiplication) {
  const ModelCost qwen = published("qwen3_235b_a22b");
  const Operations operations = qwen.operations(qwen.decode(2, 1000));
  EXPECT_DOUBLE_EQ(operations.probabilities, 94.0 * 64 * 2 * 1000);
  const MachineSpeed speed = {1e12, 1e12, 1e12};
  Operations without = operations;
  without.probabilities = 0;
  EXPECT_NEAR(ModelCost::seconds(0, operations, speed) - ModelCost::seconds(0, without, speed),
              operations.probabilities * kProbabilityOperations / kPassEfficiency / 1e12, 1e-9);
  EXPECT_EQ(operations.all(), without.all());
}

// By hand: the output projections and the states of the layers with delta nets.
TEST(Cost, DeltaNetsAreAPartOfAttnCore) {
  const ModelChoice choice = choice_of("golden/qwen3_next");
  const DeltaNetConfig& net = choice.model.delta_net;
  const ModelCost hybrid = cost_of(choice), plain = published("qwen3_235b_a22b");
  const auto nets = [](const ModelCost& cost) -> const StageSize& {
    return cost.attention(Op::attn_core, AttentionKind::linear);
  };
  EXPECT_DOUBLE_EQ(nets(hybrid).of_row.floats, 2.0 * choice.model.num_linear_layers() *
                                                   net.value_columns() * choice.model.hidden_size);
  EXPECT_GT(nets(hybrid).bytes, 0);
  EXPECT_LT(nets(hybrid).bytes, hybrid.stage(Op::attn_core).bytes);
  const PassShape pass = hybrid.prefill(100, 50);
  const auto of_nets = [&](const ModelCost& cost) {
    return cost.attention_operations(pass, AttentionKind::linear).floats;
  };
  EXPECT_GT(of_nets(hybrid), 0);
  EXPECT_LT(of_nets(hybrid), hybrid.attention_operations(pass).floats);
  EXPECT_EQ(nets(plain).bytes, 0);
  EXPECT_EQ(of_nets(plain), 0);
}

TEST(Cost, KindsOfAttentionAddUp) {
  using enum AttentionKind;
  const struct {
    const char* folder;
    std::vector<AttentionKind> kinds;
  } models[] = {{"golden/qwen3_next", {full, linear}},
                {"golden/gpt_oss", {full, window}},
                {"golden/kimi_linear", {latent, linear}},
                {"golden/qwen3_moe", {full}}};
  for (const auto& [folder, want] : models) {
    SCOPED_TRACE(folder);
    const ModelChoice choice = choice_of(folder);
    const ModelCost cost = cost_of(choice);
    const LayerKinds kinds = layer_kinds(choice.model);
    const PassShape pass = cost.prefill(100, 50);
    ASSERT_EQ(kinds.num(), std::ssize(want));
    double in = 0, core = 0, keys = 0;
    for (int number = 0; number < kinds.num(); ++number) {
      const AttentionKind kind = kinds.kind(number);
      EXPECT_EQ(kind, want[static_cast<size_t>(number)]);
      EXPECT_GT(cost.attention(Op::attn_in, kind).bytes, 0);
      EXPECT_GT(cost.kv_bytes(pass, kind), 0);
      in += cost.attention(Op::attn_in, kind).bytes;
      core += cost.attention(Op::attn_core, kind).bytes;
      keys += cost.kv_bytes(pass, kind);
    }
    EXPECT_DOUBLE_EQ(in, cost.stage(Op::attn_in).bytes);
    EXPECT_DOUBLE_EQ(core, cost.stage(Op::attn_core).bytes);
    EXPECT_DOUBLE_EQ(keys, cost.kv_bytes(pass));
  }
}

TEST(Cost, UniformRoutingHitsMoreAndMoreExperts) {
  const ModelCost cost = published("qwen3_235b_a22b");
  EXPECT_DOUBLE_EQ(cost.expected_experts(1), 94 * 8);
  EXPECT_NEAR(cost.expected_experts(2), 94 * (8 + 8 * 120.0 / 128), 1e-6);
  EXPECT_NEAR(cost.expected_experts(2048), 94 * 128, 1e-6);
}

TEST(Cost, AbsorbedScoresCostMoreAndReadTheSame) {
  const ModelCost cost = published("deepseek_v3");
  PassShape pass = cost.decode(1, 4096);
  const double absorbed = cost.operations(pass).all(), bytes = cost.bytes(pass);
  pass.form = MlaForm::expanded;
  // 128 heads of 61 layers: 2 * 512 + 64 against 128 + 64 + 128 per pair, but every key is
  // expanded.
  const double expanding = 2.0 * 61 * 128 * 256 * 512 * 4095;
  EXPECT_NEAR(cost.operations(pass).all() - absorbed,
              expanding - 2.0 * 61 * 128 * 4096 * (1088 - 320), 1e-3 * expanding);
  EXPECT_EQ(cost.bytes(pass), bytes);
}

// Expects that the passes of docs/results.md, shape small, are forecast within 14 %.
TEST(Cost, MeasuredPassesAreForetold) {
  ServerSettings settings;
  ModelChoice choice;
  ModelConfig& m = choice.model;
  m.architecture = "Qwen3MoeForCausalLM";
  m.vocab_size = 32000, m.hidden_size = 1024, m.num_layers = 12;
  m.num_heads = 16, m.num_kv_heads = 4, m.head_dim = 64, m.qk_norm = true;
  m.moe.num_experts = 32, m.moe.top_k = 4, m.moe.intermediate_size = 512;
  m.layer_is_moe.assign(12, true);
  m.rope.rotary_dim = 64;
  const ModelCost cost = cost_of(choice);
  const MachineSpeed speed = {76.8e9, 236e9, 0};
  const auto foretold = [&](double tokens, const PassShape& pass) {
    return tokens / cost.seconds(pass, speed);
  };
  EXPECT_NEAR(foretold(512, cost.prefill(512, 0)), 889, 0.05 * 889);
  EXPECT_NEAR(foretold(2048, cost.prefill(2048, 0)), 723, 0.05 * 723);
  for (const auto& [batch, measured] : {std::pair(1, 191.0), {4, 308.0}, {16, 475.0}, {32, 603.0}})
    EXPECT_NEAR(foretold(batch, cost.decode(batch, 136)), measured, 0.14 * measured) << batch;
}

}  // namespace
}  // namespace hocket
