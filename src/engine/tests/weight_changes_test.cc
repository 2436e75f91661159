// Loading says what it changes: modules that the files lack, tensors that nobody reads, and stored
// matrices that become larger.
#include "engine/runner/weight_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "compute/models/family.h"
#include "compute/weights/stacked_experts.h"
#include "engine/plan/scheduler_settings.h"
#include "engine/runner/runner.h"
#include "engine/tests/tensor_file.h"
#include "engine/tests/testing.h"

namespace hocket {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::settings_for;

Result<std::unique_ptr<Runner>> runner_of(const std::filesystem::path& model,
                                          const char* algorithm) {
  ServerSettings settings = settings_for(std::filesystem::path("tests/golden") / model);
  settings.speculation.algorithm = algorithm;
  settings.compute.num_threads = 1;
  return Runner::create({.settings = settings, .progress = {}, .tokenizer_eos = {}});
}

// Returns a copy of a golden model whose config.json names modules that the files lack.
std::filesystem::path named_in_vain(const char* model, const char* key, int num = 1) {
  const auto from = source_dir() / "tests/golden" / model;
  const auto folder = std::filesystem::path(::testing::TempDir()) / (std::string("vain_") + model);
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(from / "model.safetensors", folder / "model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  std::ifstream in(from / "config.json");
  nlohmann::json config = nlohmann::json::parse(in);
  config[key] = num;
  std::ofstream(folder / "config.json") << config;
  return folder;
}

TEST(WeightChanges, FilesWithoutTheModuleAreServedWithDraftsFromTheText) {
  for (const auto& [model, key] : {std::pair("glm4_moe", "num_nextn_predict_layers"),
                                   std::pair("qwen3_moe_bf16", "mtp_num_hidden_layers")}) {
    const std::filesystem::path folder = named_in_vain(model, key);
    const auto runner = runner_of(folder, "auto");
    ASSERT_TRUE(runner.has_value()) << model << describe(runner.error());
    const EngineInfo& info = (*runner)->info();
    EXPECT_EQ(info.model.num_mtp_loaded, 0);
    EXPECT_THAT(info.changes, Contains(Field(&SettingChange::to, "NGRAM"))) << model;
    EXPECT_EQ((*runner)->plan().max_drafts, kMaxDrafts) << model;
    const auto refused = runner_of(folder, "NEXTN");
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, ErrorCode::missing_tensor);
    EXPECT_THAT(refused.error().fix, HasSubstr("--speculative-algorithm NGRAM"));
  }
  const auto with = runner_of("qwen3_next", "auto");
  ASSERT_TRUE(with.has_value()) << describe(with.error());
  EXPECT_EQ((*with)->info().model.num_mtp_loaded, 1);
}

// Experts that move have no places in a module that is not there.
TEST(WeightChanges, AModuleThatTheFilesLackHasNoPlaces) {
  ServerSettings settings = settings_for(named_in_vain("glm4_moe", "num_nextn_predict_layers"));
  settings.speculation.algorithm = "auto";
  settings.parallel.ep_size = 2;
  settings.parallel.tolerate_ranks = 1;
  const RankConfig seat{.rank = 0, .num_ranks = 2, .machine = inspect_machine()};
  const auto runner =
      Runner::create({.settings = settings, .progress = {}, .tokenizer_eos = {}, .seat = &seat});
  ASSERT_TRUE(runner.has_value()) << describe(runner.error());
  EXPECT_EQ((*runner)->info().model.num_mtp_loaded, 0);
  EXPECT_EQ((*runner)->placement().num_layers(), (*runner)->info().model.num_layers);
}

// The modules that are there draft.
TEST(WeightChanges, FilesWithFewerModulesGiveFewerDrafts) {
  const auto folder = named_in_vain("mimo_v2_flash_mtp", "num_nextn_predict_layers", 5);
  for (const char* algorithm : {"auto", "NEXTN"}) {
    const auto runner = runner_of(folder, algorithm);
    ASSERT_TRUE(runner.has_value()) << describe(runner.error());
    const EngineInfo& info = (*runner)->info();
    EXPECT_EQ(info.model.num_mtp_loaded, 3);
    EXPECT_EQ(info.speculation.algorithm, algorithm);
    EXPECT_EQ((*runner)->plan().max_drafts, algorithm == std::string("auto") ? kMaxDrafts : 3);
    EXPECT_THAT(info.changes,
                Contains(Field(&SettingChange::from, "5 modules for multi-token prediction")));
  }
}

TEST(WeightChanges, StoredMatricesThatBecomeLargerHaveAPrice) {
  const auto runner = runner_of("deepseek_v3_fp8", "none");
  ASSERT_TRUE(runner.has_value()) << describe(runner.error());
  EXPECT_THAT((*runner)->info().changes,
              Contains(Field(&SettingChange::why, HasSubstr("kv_b_proj"))));
}

TEST(WeightChanges, TheFormOfLatentsIsSaid) {
  const auto latents = runner_of("glm4_moe_lite", "none"),
             beside = runner_of("kimi_linear", "none");
  ASSERT_TRUE(latents && beside);
  EXPECT_THAT((*latents)->info().notes, ElementsAre(HasSubstr("--mla-form absorbed keeps them")));
  EXPECT_THAT((*beside)->info().notes, ElementsAre());
  EXPECT_THAT((*beside)->info().changes,
              Contains(Field(&SettingChange::why, HasSubstr("times the operations"))));
}

// Scales of bfloat16 that float16 does not hold are counted.
TEST(WeightChanges, ScalesOfInt4ThatChangeAreCounted) {
  const auto from = source_dir() / "tests/golden/quantized/packed";
  const auto folder = std::filesystem::path(::testing::TempDir()) / "small_scales";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(from / "config.json", folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  testing::TensorFile tensors(from / "model.safetensors");
  for (const char* part : {"gate", "up"}) {
    const auto name = fmt::format("model.layers.0.mlp.experts.0.{}_proj.weight_scale", part);
    ASSERT_EQ(tensors.header.at(name).at("dtype"), "BF16");
    constexpr uint16_t kSmall = 0x3681;  // 2^-18 + 2^-25
    std::memcpy(tensors.bytes_of(name), &kSmall, sizeof(kSmall));
  }
  tensors.write(folder / "model.safetensors");
  const auto plain = runner_of("quantized/packed", "none"), small = runner_of(folder, "none");
  ASSERT_TRUE(plain && small);
  const auto counted = Field(&SettingChange::why, HasSubstr("which changes 2 of them"));
  EXPECT_THAT((*small)->info().changes, Contains(counted));
  EXPECT_THAT((*plain)->info().changes,
              Not(Contains(Field(&SettingChange::to, HasSubstr("float16 scales")))));
}

struct NamesOnly final : WeightSource {
  explicit NamesOnly(std::vector<std::string> given) : all(std::move(given)) {}
  Result<StoredTensor> find(std::string_view name) const override {
    return fail(ErrorCode::missing_tensor, "{}", name);
  }
  bool has(std::string_view /*name*/) const override { return false; }
  std::vector<std::string> names() const override { return all; }

  std::vector<std::string> all;
};

// Modules of Qwen3.5 are loaded from GGUF files; those of other architectures are named.
TEST(WeightChanges, DraftLayersOfAGgufFileThatAreLeftAsideAreNamed) {
  const auto says = [](const char* model, const char* tensor) {
    const ModelChoice choice = testing::choice_of(std::filesystem::path("golden") / model);
    const WeightLoader loader = WeightLoader::measuring(choice.loader_options());
    const NamesOnly files({"token_embd.weight", tensor});
    return std::ranges::any_of(weight_changes(choice, loader, &files), [](const auto& change) {
      return change.to == "not loaded" && change.from.contains("nextn");
    });
  };
  EXPECT_TRUE(says("gguf_mimo2", "blk.4.nextn.eh_proj.weight"));
  EXPECT_FALSE(says("gguf_mimo2", "blk.4.attn_q.weight"));
  EXPECT_FALSE(says("gguf_qwen35moe", "blk.2.nextn.eh_proj.weight"));
}

// Files of less than four bits a weight take more memory than their bytes.
TEST(WeightChanges, TypesThatGrowInMemoryAreSaidToDoSo) {
  ModelChoice choice;
  choice.headers = std::make_shared<NamesOnly>(std::vector<std::string>{});
  const auto path = source_dir() / "tests/golden/gguf_types/types.gguf";
  const auto line_of = [&](std::string_view type) {
    const auto all = file_changes(choice, {.model_path = path.string()});
    EXPECT_TRUE(all.has_value()) << describe(all.error());
    const auto found = std::ranges::find_if(*all, [&](const SettingChange& change) {
      return change.from.starts_with(std::string(type) + ",");
    });
    return found == all->end() ? "none" : found->to + ": " + found->why;
  };
  EXPECT_THAT(line_of("Q2_K"), HasSubstr("(3.2 times)"));
  EXPECT_THAT(line_of("Q2_K"), HasSubstr("--quantization int4"));
  EXPECT_THAT(line_of("Q3_K"), HasSubstr("(1.3 times)"));
  EXPECT_THAT(line_of("Q3_K"), Not(HasSubstr("--quantization int4")));
  EXPECT_THAT(line_of("Q4_K"), Not(HasSubstr("times)")));
  choice.quantize = WeightFormat::int4;
  EXPECT_THAT(line_of("Q2_K"), Not(HasSubstr("--quantization int4")));
}

// Nothing is left over in files of the publishers' tools; without a layer of its config.json, the
// tensors of that layer are.
TEST(WeightChanges, TensorsThatNobodyReadsAreNamed) {
  for (const auto& entry : std::filesystem::directory_iterator(source_dir() / "tests/golden")) {
    const bool in_gguf = std::filesystem::exists(entry.path() / "model.gguf");
    if (!in_gguf && !std::filesystem::exists(entry.path() / "model.safetensors")) continue;
    SCOPED_TRACE(entry.path().filename().string());
    ModelChoice choice =
        testing::choice_of(std::filesystem::path("golden") / entry.path().filename());
    const auto files = open_model_weights(entry.path(), choice.model.moe);
    ASSERT_TRUE(files.has_value()) << describe(files.error());
    const auto unread_in = [&](const ModelChoice& read) {
      WeightLoader::Options options = read.loader_options();
      options.source = files->get();
      WeightLoader loader = WeightLoader::measuring(options);
      EXPECT_TRUE(load_held(read, loader).has_value());
      std::string names;
      for (const SettingChange& change : weight_changes(read, loader, files->get()))
        if (change.to == "not read") names += change.from;
      return names;
    };
    ModelChoice shorter = choice;
    --shorter.model.num_layers;
    const ModelFamily& family = *find_family(choice.model.architecture).value();
    const bool has_modules = family.mtp != nullptr || family.has_layers_behind;
    if (in_gguf || !has_modules) {
      EXPECT_THAT(unread_in(shorter), HasSubstr(in_gguf ? "blk.*." : "layers.*."));
    }
    EXPECT_EQ(unread_in(choice), "");
  }
}

}  // namespace
}  // namespace hocket
