// Compares the engine with Hugging Face: every tiny reference model, the bundled model's recorded
// answers, and the sampler's distributions.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "compute/weights/hf_config.h"
#include "engine/check/checker.h"
#include "engine/tests/testing.h"

namespace hocket {
namespace {

using namespace testing;

std::unique_ptr<Runner> make_runner(const std::filesystem::path& model, const std::string& dtype,
                                    int modules = 0) {
  ServerSettings settings = settings_for(model);
  settings.model.dtype = dtype;
  settings.model.max_mtp_modules = modules;
  auto runner = Runner::create({.settings = settings, .progress = {}, .tokenizer_eos = {}});
  if (!runner) {
    ADD_FAILURE() << describe(runner.error());
    return nullptr;
  }
  return *std::move(runner);
}

void expect_ok(const Result<std::vector<CheckLine>>& lines, size_t min_lines) {
  ASSERT_TRUE(lines.has_value()) << describe(lines.error());
  EXPECT_GE(lines->size(), min_lines);
  for (const CheckLine& line : *lines) {
    EXPECT_TRUE(line.ok) << line.dtype << " " << line.way << " " << line.quantity << ": worst "
                         << line.worst << "; " << line.first_failure;
    EXPECT_GT(line.compared, 0) << line.quantity;
    std::printf("%-8s %-12s %-24s %8ld numbers  worst %.3g\n", line.dtype.c_str(), line.way.c_str(),
                line.quantity.c_str(), static_cast<long>(line.compared), line.worst);
  }
}

class GoldenModel : public ::testing::TestWithParam<const char*> {};

// `reference_of` names another folder whose outputs are those of the model; empty: its own.
void check_model(const std::string& name, const std::string& dtype, size_t min_lines,
                 const std::string& reference_of = "") {
  const std::filesystem::path golden = "tests/golden", folder = golden / name;
  const auto config = read_hf_config(source_dir() / folder);
  ASSERT_TRUE(config.has_value()) << describe(config.error());
  const auto reference = Reference::read(
      source_dir() / golden / (reference_of.empty() ? name : reference_of), *config);
  ASSERT_TRUE(reference.has_value()) << describe(reference.error());
  const bool has_modules = dtype == "float32" && reference_of.empty();
  auto runner = make_runner(folder, dtype, has_modules ? reference->num_modules() : 0);
  ASSERT_NE(runner, nullptr);
  EXPECT_GE(reference->prompts.size(), 5U);
  expect_ok(check_reference(*runner, *reference), min_lines);
}

TEST_P(GoldenModel, Float32) {
  check_model(GetParam(), "float32", 3 * 9);
}

TEST_P(GoldenModel, Bf16) {
  check_model(GetParam(), "bfloat16", 3 * 2);
}

// The difference in bfloat16, where rows become int8, is bounded in quality_test.cc.
class GoldenGguf : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenGguf, Float32) {
  check_model(GetParam(), "float32", 3 * 9);
}

// tools/gguf_model made these files from folders, with all that llama.cpp's converter changes.
TEST(Golden, GgufFilesComputeWhatTheirFoldersDo) {
  const std::pair<const char*, const char*> kFiles[] = {{"gguf_qwen3next", "qwen3_next"},
                                                        {"gguf_qwen35moe", "qwen3_5_moe_mtp"},
                                                        {"gguf_qwen3vlmoe", "qwen3_vl_moe"},
                                                        {"gguf_llama4", "llama4"},
                                                        {"gguf_mistral4", "mistral4"},
                                                        {"gguf_ernie4_5_moe", "ernie4_5_moe"},
                                                        {"gguf_mimo2", "mimo_v2_flash"},
                                                        {"gguf_step35", "step3p7"},
                                                        {"gguf_gemma4", "gemma4_moe"},
                                                        {"gguf_kimi_linear", "kimi_linear"},
                                                        {"gguf_qwen2", "qwen2"},
                                                        {"gguf_qwen3", "qwen3"},
                                                        {"gguf_glm4moe", "glm4_moe_mtp"},
                                                        {"gguf_minimax_m2", "minimax_m2"},
                                                        {"gguf_gpt_oss", "gpt_oss_mxfp4"},
                                                        {"gguf_qwen35", "qwen3_5"},
                                                        {"gguf_deepseek_v2", "deepseek_v2_lite"},
                                                        {"gguf_kimi_k2", "kimi_k25"},
                                                        {"gguf_glm4_flash", "glm4_moe_lite"}};
  for (const auto& [file, folder] : kFiles) {
    SCOPED_TRACE(file);
    check_model(file, "float32", 3 * 9, folder);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenGguf,
                         ::testing::Values("gguf_llama", "gguf_qwen3moe", "gguf_deepseek2"),
                         [](const auto& one) { return std::string(one.param); });

INSTANTIATE_TEST_SUITE_P(
    Golden, GoldenModel,
    ::testing::Values("llama", "llama_bf16", "qwen2", "qwen3", "qwen3_moe", "qwen3_moe_bf16",
                      "qwen3_moe_sparse2", "deepseek_v2_lite", "deepseek_v2", "deepseek_v3",
                      "deepseek_v3_bf16", "deepseek_v3_plain", "deepseek_v3_fp8", "glm4_moe",
                      "glm4_moe_lite", "kimi_k25", "qwen3_vl_moe", "minimax_m2", "ernie4_5_moe",
                      "mistral4", "qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_moe_mxfp4",
                      "qwen3_moe_nvfp4", "mimo_v2_flash", "gpt_oss", "gpt_oss_mxfp4", "llama4",
                      "step3p7", "kimi_linear", "gemma4_moe", "deepseek_v3_mtp", "glm4_moe_mtp",
                      "qwen3_next_mtp", "qwen3_5_moe_mtp", "mimo_v2_flash_mtp"),
    [](const auto& param) { return std::string(param.param); });

// Returns the quantities of modules for multi-token prediction that a check compared, and how many
// numbers of each.
std::map<std::string, int64_t> module_lines(const std::string& name, int modules,
                                            const std::string& reference_of = "") {
  const std::filesystem::path golden = "tests/golden";
  auto runner = make_runner(golden / name, "float32", modules);
  const auto reference = Reference::read(
      source_dir() / golden / (reference_of.empty() ? name : reference_of), runner->info().model);
  const auto lines = check_reference(*runner, *reference);
  std::map<std::string, int64_t> found;
  for (const CheckLine& line : *lines)
    if (line.way == "chunks of 17" && line.quantity.starts_with("mtp "))
      found[line.quantity] = line.compared;
  return found;
}

TEST(GoldenModules, AreComparedIfTheyAreLoaded) {
  EXPECT_TRUE(module_lines("qwen3_next_mtp", 0).empty());
  // Rows of prompts of 5, 40 and 70 tokens; drafts of 15 rows of each.
  const auto next = module_lines("qwen3_next_mtp", 1);
  EXPECT_EQ(next.at("mtp argmax"), 5 + 40 + 70);
  EXPECT_EQ(next.at("mtp logits_last"), 3 * 4 * 512);
  EXPECT_EQ(next.at("mtp drafts"), 3 * 15 * 3);
  const auto gguf = module_lines("gguf_qwen35moe", 1, "qwen3_5_moe_mtp");
  EXPECT_EQ(gguf, module_lines("qwen3_5_moe_mtp", 1));
  EXPECT_EQ(gguf.at("mtp argmax"), 5 + 40 + 70);
  // Three modules, whose drafts are compared behind the prompt only.
  const auto mimo = module_lines("mimo_v2_flash_mtp", 3);
  EXPECT_EQ(mimo.at("mtp argmax"), 3 * (5 + 40 + 70));
  EXPECT_EQ(mimo.at("mtp drafts"), 3 * 3);
}

// Families that are not supported yet: their config.json alone is refused, naming the reason.
class RefusedModel : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(RefusedModel, ByTheNameOfItsArchitecture) {
  const auto& [folder, architecture] = GetParam();
  const ServerSettings settings =
      settings_for(std::filesystem::path("tests/golden/refused") / folder);
  const auto runner = Runner::create({.settings = settings, .progress = {}, .tokenizer_eos = {}});
  ASSERT_FALSE(runner.has_value());
  EXPECT_EQ(runner.error().code, ErrorCode::unsupported_model);
  EXPECT_NE(runner.error().message.find(architecture), std::string::npos)
      << describe(runner.error());
}

INSTANTIATE_TEST_SUITE_P(Golden, RefusedModel,
                         ::testing::Values(std::pair("deepseek_v32", "DeepseekV32ForCausalLM"),
                                           std::pair("deepseek_v4", "DeepseekV4ForCausalLM"),
                                           std::pair("glm_moe_dsa", "GlmMoeDsaForCausalLM"),
                                           std::pair("bailing_hybrid", "BailingHybridForCausalLM")),
                         [](const auto& param) { return std::string(param.param.first); });

// Finds the rows whose router chose other experts in bf16: the only rows that the check forgives.
class ChosenExperts final : public RowReader {
 public:
  struct Row {
    std::vector<int> experts;  // those of all layers
    std::vector<float> logits;
  };
  void routing(ScriptRow row, int, const Choice& choice) override {
    std::vector<int>& all = rows_[{row.script, row.position}].experts;
    const auto begin = all.insert(all.end(), choice.experts.begin(), choice.experts.end());
    std::sort(begin, all.end());
  }
  void head(ScriptRow row, const Head& head) override {
    rows_[{row.script, row.position}].logits.assign(head.logits.begin(), head.logits.end());
  }
  const auto& rows() const { return rows_; }

 private:
  std::map<std::pair<int, int>, Row> rows_;
};

TEST(GoldenRouting, RowsFarOffInBf16ChoseOtherExperts) {
  const auto folder = source_dir() / "tests/golden/deepseek_v3_bf16";
  ChosenExperts exact, bf16;
  double bound = 0;
  for (const auto& [dtype, reader] : {std::pair("float32", &exact), std::pair("bfloat16", &bf16)}) {
    auto runner = make_runner(folder, dtype);
    ASSERT_NE(runner, nullptr);
    const auto reference = Reference::read(folder, runner->info().model);
    ASSERT_TRUE(reference.has_value()) << describe(reference.error());
    bound = 1.5 * reference->bf16_logits_max_abs;
    ASSERT_TRUE(play_scripts(*runner, scripts_of(*reference), {}, *reader).has_value());
  }
  int far_off = 0;
  for (const auto& [at, want] : exact.rows()) {
    const ChosenExperts::Row& got = bf16.rows().at(at);
    double off = 0;
    for (size_t i = 0; i < want.logits.size(); ++i)
      off = std::max<double>(off, std::abs(got.logits[i] - want.logits[i]));
    if (off <= bound) continue;
    ++far_off;
    EXPECT_NE(got.experts, want.experts) << "script " << at.first << " position " << at.second;
  }
  std::printf("%d of %zu rows\n", far_off, exact.rows().size());
  EXPECT_GT(far_off, 0);
}

// Tests the check itself: it must find a model that forgets to renormalise its routing weights, and
// name the layer.
TEST(GoldenMistake, IsFoundInTheFirstLayerThatHasIt) {
  const auto folder = std::filesystem::path(::testing::TempDir()) / "hocket_mistaken_model";
  const auto original = source_dir() / "tests/golden/qwen3_moe_bf16";
  std::filesystem::create_directories(folder);
  using Copy = std::filesystem::copy_options;
  std::filesystem::copy(original, folder, Copy::overwrite_existing | Copy::recursive);
  std::ifstream in(original / "config.json");
  nlohmann::json config = nlohmann::json::parse(in);
  ASSERT_TRUE(config["norm_topk_prob"].get<bool>());
  config["norm_topk_prob"] = false;
  std::ofstream(folder / "config.json") << config;

  auto runner = make_runner(folder, "float32");
  ASSERT_NE(runner, nullptr);
  const auto reference = Reference::read(folder, runner->info().model);
  ASSERT_TRUE(reference.has_value()) << describe(reference.error());
  const auto lines = check_reference(*runner, *reference);
  ASSERT_TRUE(lines.has_value());
  std::map<std::string, const CheckLine*> whole;
  for (const CheckLine& line : *lines)
    if (line.way == "whole") whole[line.quantity] = &line;
  EXPECT_TRUE(whole["embeddings"]->ok);
  for (const char* wrong : {"layer outputs", "expert weights", "logits_last", "greedy top8"})
    EXPECT_FALSE(whole[wrong]->ok) << wrong;
  EXPECT_NE(whole["layer outputs"]->first_failure.find("layer 0 is the first that differs"),
            std::string::npos)
      << whole["layer outputs"]->first_failure;
}

TEST(GoldenRecorded, BundledModel) {
  const std::filesystem::path folder = "models/hocket-tiny-qwen3-moe";
  const auto recorded = read_recorded(source_dir() / folder / "expected.json");
  ASSERT_TRUE(recorded.has_value()) << describe(recorded.error());
  EXPECT_EQ(recorded->size(), 30);
  EXPECT_TRUE(has_drafts(*recorded));
  // Answers, their log-probabilities and first drafts, in three ways.
  for (const char* dtype : {"float32", "bfloat16"}) {
    auto runner = make_runner(folder, dtype, 1);
    ASSERT_NE(runner, nullptr);
    expect_ok(check_recorded(*runner, *recorded), 9);
  }
}

// A draft that the file says otherwise is found: the module is compared, not only played.
TEST(GoldenRecorded, AnotherDraftIsFound) {
  const std::filesystem::path folder = "models/hocket-tiny-qwen3-moe";
  auto recorded = read_recorded(source_dir() / folder / "expected.json");
  ASSERT_TRUE(recorded.has_value()) << describe(recorded.error());
  recorded->resize(1);
  TokenId& draft = recorded->front().drafts.front();
  draft = TokenId{value(draft) + 1};
  auto runner = make_runner(folder, "float32", 1);
  ASSERT_NE(runner, nullptr);
  const auto lines = check_recorded(*runner, *recorded);
  ASSERT_TRUE(lines.has_value()) << describe(lines.error());
  for (const CheckLine& line : *lines)
    EXPECT_EQ(line.ok, line.quantity != "first drafts") << line.quantity;
}

TEST(GoldenSampling, TwentyDistributions) {
  expect_ok(check_sampling(source_dir() / "tests/golden/sampling"), 6);
}

}  // namespace
}  // namespace hocket
